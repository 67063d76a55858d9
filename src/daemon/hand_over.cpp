#include "src/daemon/hand_over.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "tinykvm/base/error.hpp"

extern char** environ;

namespace kvmserver::daemon {

using namespace tinykvm;

namespace {

constexpr const char* kHandOver = "KVMSERVER_HAND_OVER"; // "SOCKET READY": descriptor numbers
// The number of TCP functions' sockets; their descriptors follow kReady. Apart, as older daemons do not know it.
constexpr const char* kHandOverTcp = "KVMSERVER_HAND_OVER_TCP";
constexpr int kFirstOfSystemd = 3;
constexpr int kSocket = 3, kReady = 4; // descriptor numbers in the successor

UniqueFd taken(int fd) {
    int listens = 0;
    socklen_t bytes = sizeof(listens);
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) < 0 || listens == 0)
        throw UserError(ExitCode::usage,
                        fmt::format("descriptor {}, which was handed in, is not a listening socket", fd));
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
    return UniqueFd(fd);
}

long number(const char* text) {
    long value = -1;
    if (text)
        std::from_chars(text, text + std::strlen(text), value);
    return value;
}

std::vector<std::string> own_words() {
    std::ifstream file("/proc/self/cmdline", std::ios::binary);
    const std::string all((std::istreambuf_iterator<char>(file)), {});
    std::vector<std::string> words;
    for (std::size_t at = 0; at < all.size(); at += words.back().size() + 1)
        words.emplace_back(all.c_str() + at);
    return words;
}

// The path of our binary, even if it was replaced since.
std::string own_path() {
    char path[PATH_MAX];
    const ssize_t n = ::readlink("/proc/self/exe", path, sizeof(path));
    if (n < 0)
        throw_errno("readlink /proc/self/exe");
    std::string text(path, static_cast<std::size_t>(n));
    constexpr std::string_view kDeleted = " (deleted)";
    if (text.ends_with(kDeleted))
        text.resize(text.size() - kDeleted.size());
    return text;
}

} // namespace

Inherited inherited_sockets() {
    Inherited out;
    if (const char* given = std::getenv(kHandOver)) {
        int socket = -1, ready = -1;
        if (std::sscanf(given, "%d %d", &socket, &ready) != 2)
            throw UserError(ExitCode::usage, fmt::format("{}={} is not for people to set", kHandOver, given));
        ::unsetenv(kHandOver);
        out.socket = taken(socket);
        out.ready = UniqueFd(ready);
        ::fcntl(ready, F_SETFD, FD_CLOEXEC);
        const long more = number(std::getenv(kHandOverTcp));
        ::unsetenv(kHandOverTcp);
        for (int fd = ready + 1; fd <= ready + more; ++fd)
            out.tcp.push_back(taken(fd));
        return out;
    }
    if (number(std::getenv("LISTEN_PID")) == ::getpid() && number(std::getenv("LISTEN_FDS")) >= 1)
        out.socket = taken(kFirstOfSystemd);
    for (const char* name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"})
        ::unsetenv(name);
    return out;
}

void notify_predecessor(UniqueFd ready) {
    if (ready)
        (void)!::write(ready.get(), "1", 1);
}

Successor start_successor(int socket, const std::vector<int>& tcp) {
    const int above = kReady + 1 + static_cast<int>(tcp.size()); // where the copies do not overwrite one another
    int pipe[2];
    if (::pipe2(pipe, O_CLOEXEC) < 0)
        throw_errno("pipe");
    UniqueFd ours(pipe[0]);
    const UniqueFd theirs(::fcntl(pipe[1], F_DUPFD_CLOEXEC, above));
    ::close(pipe[1]);
    const UniqueFd given(::fcntl(socket, F_DUPFD_CLOEXEC, above));
    if (!theirs || !given)
        throw_errno("dup");
    std::vector<UniqueFd> more;
    for (const int fd : tcp)
        if (!more.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, above)))
            throw_errno("dup");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (std::size_t i = 0; i < more.size(); ++i)
        posix_spawn_file_actions_adddup2(&actions, more[i].get(), kReady + 1 + static_cast<int>(i));
    posix_spawn_file_actions_adddup2(&actions, given.get(), kSocket);
    posix_spawn_file_actions_adddup2(&actions, theirs.get(), kReady);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    std::vector<std::string> words = own_words();
    std::vector<char*> argv, environment;
    for (std::string& word : words)
        argv.push_back(word.data());
    argv.push_back(nullptr);
    std::string hand_over = fmt::format("{}={} {}", kHandOver, kSocket, kReady);
    for (char** entry = environ; *entry; ++entry)
        environment.push_back(*entry);
    environment.push_back(hand_over.data());
    std::string hand_over_tcp = fmt::format("{}={}", kHandOverTcp, tcp.size());
    environment.push_back(hand_over_tcp.data());
    environment.push_back(nullptr);
    pid_t pid = -1;
    const int error = ::posix_spawn(&pid, own_path().c_str(), &actions, &attributes, argv.data(), environment.data());
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (error != 0)
        throw HostError(error, "start " + own_path());
    return {pid, std::move(ours)};
}

bool successor_serves(int ready) {
    char byte;
    return ::read(ready, &byte, 1) == 1;
}

void notify_service_manager(const std::string& state) {
    const char* path = std::getenv("NOTIFY_SOCKET");
    sockaddr_un address{};
    if (!path || std::strlen(path) >= sizeof(address.sun_path) || (path[0] != '/' && path[0] != '@'))
        return;
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path, std::strlen(path));
    if (path[0] == '@')
        address.sun_path[0] = '\0';
    const UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd)
        ::sendto(fd.get(), state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<sockaddr*>(&address),
                 static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(path)));
}

} // namespace kvmserver::daemon
