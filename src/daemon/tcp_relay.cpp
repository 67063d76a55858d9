#include "src/daemon/tcp_relay.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

namespace kvmserver::daemon {

namespace {

constexpr int kAtOnce = 4; // so that a fast connection does not keep others waiting

bool try_again() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

bool hung_up(int fd) {
    pollfd one{fd, 0, 0};
    return ::poll(&one, 1, 0) > 0 && (one.revents & (POLLHUP | POLLERR)) != 0;
}

} // namespace

// False if the target takes no more bytes, ever.
bool TcpRelay::flush(int to, Direction& direction) {
    if (!direction.pending.empty()) {
        const ssize_t sent =
            ::send(to, direction.pending.data(), direction.pending.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0)
            return try_again();
        direction.pending.erase(0, static_cast<std::size_t>(sent));
    }
    if (direction.pending.empty() && direction.ended && !direction.passed_on) {
        ::shutdown(to, SHUT_WR);
        direction.passed_on = true;
    }
    return true;
}

TcpRelay::Moved TcpRelay::move(int from, int to, Direction& direction, std::span<char> room) {
    for (int i = 0; i < kAtOnce; ++i) {
        if (!flush(to, direction))
            return Moved::target_failed;
        if (direction.ended || !direction.pending.empty())
            return Moved::all;
        const ssize_t got = ::recv(from, room.data(), room.size(), MSG_DONTWAIT);
        if (got < 0)
            return try_again() ? Moved::all : Moved::source_failed;
        direction.bytes += static_cast<std::uint64_t>(got);
        direction.ended = got == 0;
        const ssize_t sent =
            got == 0 ? 0 : ::send(to, room.data(), static_cast<std::size_t>(got), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && !try_again())
            return Moved::target_failed;
        const auto done = static_cast<std::size_t>(sent < 0 ? 0 : sent);
        direction.pending.assign(room.data() + done, static_cast<std::size_t>(got) - done);
    }
    return flush(to, direction) ? Moved::all : Moved::target_failed;
}

TcpRelay::State TcpRelay::move(std::span<char> room) {
    // First what the program says: it may have closed, and then takes nothing.
    Moved moved = move(machine_.get(), client_.get(), down_, room);
    if (moved == Moved::target_failed)
        return State::client_gone;
    if (moved == Moved::source_failed) { // it closed without reading all that the client sent
        down_.ended = true;
        if (!flush(client_.get(), down_))
            return State::client_gone;
    }
    if (down_.passed_on && hung_up(machine_.get()))
        return State::machine_closed;
    moved = move(client_.get(), machine_.get(), up_, room);
    if (moved == Moved::source_failed)
        return State::client_gone;
    if (moved == Moved::target_failed) { // the program closes; its last bytes are still to come
        up_.pending.clear();
        up_.ended = up_.passed_on = true;
    }
    return up_.passed_on && down_.passed_on ? State::both_ended : State::open;
}

std::uint32_t TcpRelay::client_events() const {
    return (up_.ended || !up_.pending.empty() ? 0u : EPOLLIN) | (down_.pending.empty() ? 0u : EPOLLOUT);
}

std::uint32_t TcpRelay::machine_events() const {
    return (down_.ended || !down_.pending.empty() ? 0u : EPOLLIN) | (up_.pending.empty() ? 0u : EPOLLOUT);
}

void TcpRelay::close(bool reset) {
    if (reset && client_) {
        const linger now{1, 0};
        ::setsockopt(client_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    }
    client_.reset();
    machine_.reset();
}

} // namespace kvmserver::daemon
