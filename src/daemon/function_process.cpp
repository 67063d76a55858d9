#include "src/daemon/function_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "tinykvm/base/error.hpp"

extern char** environ;

namespace kvmserver::daemon {

using namespace tinykvm;

namespace {

constexpr int kBacklog = 1024;
constexpr int kListenFd = 3; // in the process

UniqueFd listen_at(const std::filesystem::path& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.native().size() >= sizeof(address.sun_path))
        throw UserError(ExitCode::usage, fmt::format("{}: too long for a socket; give a shorter --store", path.native()));
    std::memcpy(address.sun_path, path.c_str(), path.native().size());
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd)
        throw_errno("socket");
    ::unlink(path.c_str());
    if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) < 0 || ::listen(fd.get(), kBacklog) < 0)
        throw_errno("listen at " + path.native());
    return fd;
}

} // namespace

FunctionProcess::FunctionProcess(std::string name, const std::filesystem::path& socket, const std::filesystem::path& snapshot, unsigned machines)
    : name_(std::move(name)), socket_path_(socket), listening_(listen_at(socket)) {
    int pipe[2];
    if (::pipe2(pipe, O_CLOEXEC) < 0)
        throw_errno("pipe");
    output_ = UniqueFd(pipe[0]);
    const UniqueFd theirs(pipe[1]);
    ::fcntl(output_.get(), F_SETFL, O_NONBLOCK);

    const std::string threads = std::to_string(machines), listen = fmt::format("fd:{}", kListenFd);
    const char* argv[] = {"kvmserver", "snaprun", "-e", "-t", threads.c_str(), "--listen", listen.c_str(), snapshot.c_str(), nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDERR_FILENO);
    posix_spawn_file_actions_adddup2(&actions, listening_.get(), kListenFd);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none, usual;
    sigemptyset(&none);
    sigemptyset(&usual);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGPIPE})
        sigaddset(&usual, signal);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    // A group of its own: Ctrl-C at the daemon is the daemon's to pass on.
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    const int error = ::posix_spawn(&pid_, "/proc/self/exe", &actions, &attributes, const_cast<char**>(argv), environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (error != 0)
        throw HostError(error, "start the process of " + name_);
    pid_fd_ = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
    if (!pid_fd_) {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        throw_errno("pidfd_open");
    }
}

FunctionProcess::~FunctionProcess() {
    if (pid_ > 0) {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    ::unlink(socket_path_.c_str());
}

void FunctionProcess::stop() {
    if (pid_ > 0)
        ::kill(pid_, SIGTERM);
}

std::string FunctionProcess::reap() {
    int status = 0;
    if (pid_ <= 0 || ::waitpid(pid_, &status, 0) != pid_)
        return "is gone";
    pid_ = -1;
    return WIFSIGNALED(status) ? fmt::format("was killed by signal {}", WTERMSIG(status)) : fmt::format("exited with status {}", WEXITSTATUS(status));
}

} // namespace kvmserver::daemon
