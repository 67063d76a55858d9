#include "src/runner/outside.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "src/protocol/cache_session.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/machine/clock.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

constexpr int kSocket = STDERR_FILENO + 1; // the helper's socket; it has no other descriptor

// Forks a process that runs `work` with one end of a socket pair. Returns the other end.
UniqueFd start(const std::function<void(int socket)>& work) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        throw_errno("socketpair");
    UniqueFd ours(ends[0]);
    const UniqueFd theirs(ends[1]);
    ::signal(SIGCHLD, SIG_IGN); // the helper is never waited for
    const pid_t child = ::fork();
    if (child < 0)
        throw_errno("fork");
    if (child > 0)
        return ours;
    // Ctrl-C at a terminal reaches the whole group, but the helper ends when the other process does.
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGPIPE})
        ::signal(number, SIG_IGN);
    if (::dup2(theirs.get(), kSocket) < 0 || ::close_range(kSocket + 1, ~0u, 0) < 0)
        ::_exit(1);
    ::fcntl(kSocket, F_SETFD, FD_CLOEXEC);
    try {
        work(kSocket);
    } catch (const std::exception&) { // the jailed process does without the helper
    }
    ::_exit(0);
}

void serve_copies(int socket, const FolderCache& cache) {
    std::uint64_t max_bytes = 0;
    if (::recv(socket, &max_bytes, sizeof(max_bytes), 0) != sizeof(max_bytes))
        return;
    constexpr std::uint64_t kRefillNs = 3600ull * 1'000'000'000;
    constexpr int kTidyMs = 1000; // make room after this long without a request
    protocol::CacheSession session(cache, std::make_shared<protocol::Allowance>(max_bytes, kRefillNs, host_mono_ns()));
    for (std::uint64_t made = 0;;) {
        pollfd asked{socket, POLLIN, 0};
        if (::poll(&asked, 1, made > 0 ? kTidyMs : -1) == 0) {
            cache.make_room();
            made = 0;
            continue;
        }
        protocol::CacheRequest request;
        const protocol::Came came = protocol::receive_request(socket, request);
        if (came == protocol::Came::nothing)
            continue;
        if (came != protocol::Came::request)
            break;
        auto outcome = session.handle(request, host_mono_ns());
        if (!outcome.broken.empty())
            break;
        made += outcome.kept;
        if (outcome.answer && !protocol::send_answer(socket, *outcome.answer))
            break;
    }
    cache.make_room();
}

void answer_existence(int socket) {
    std::array<char, 4097> path;
    for (ssize_t bytes; (bytes = ::recv(socket, path.data(), path.size() - 1, 0)) > 0;) {
        path[static_cast<std::size_t>(bytes)] = '\0';
        const char there = ::access(path.data(), F_OK) == 0 ? 1 : 0;
        if (::send(socket, &there, 1, 0) != 1)
            return;
    }
}

} // namespace

CacheOutside::CacheOutside(const FolderCache& cache)
    : socket_(start([&](int socket) { serve_copies(socket, cache); })) {}

UniqueFd CacheOutside::allow(std::uint64_t max_bytes) && {
    if (::send(socket_.get(), &max_bytes, sizeof(max_bytes), MSG_NOSIGNAL) != sizeof(max_bytes))
        throw_errno("send");
    return std::move(socket_);
}

std::function<bool(const std::string&)> existence_outside() {
    const auto socket = std::make_shared<const UniqueFd>(start(answer_existence));
    return [socket](const std::string& path) {
        char there = 0;
        return ::send(socket->get(), path.data(), path.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(path.size()) &&
               ::recv(socket->get(), &there, 1, 0) == 1 && there != 0;
    };
}

} // namespace kvmserver
