#include "src/runner/connections/accepted_connections.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "src/event_loop/stop.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

constexpr std::uint64_t kStop = ~std::uint64_t{0};
constexpr std::uint64_t kFirstServed = 1 << 15, kFirstSilent = 1 << 16;
constexpr std::size_t kMaxDatagram = 65536;

} // namespace

AcceptedConnections::AcceptedConnections(const Listeners& listeners, std::vector<HandleBase::Served> served,
                                         Given given)
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)), served_(std::move(served)), given_(given) {
    if (!epoll_)
        throw_errno("epoll_create1");
    for (const Listeners::Listening& l : listeners.all()) {
        listening_.push_back(l);
        add(l.fd, EPOLLIN | EPOLLEXCLUSIVE, static_cast<std::uint64_t>(listening_.size() - 1));
    }
    for (std::size_t i = 0; i < served_.size() && i < kFirstServed; ++i)
        add(served_[i].fd, EPOLLIN | EPOLLEXCLUSIVE, kFirstServed + i);
    add(StopSignal::instance().fd(), EPOLLIN, kStop);
}

bool AcceptedConnections::next(IncomingConnection& out) {
    for (;;) {
        epoll_event event;
        const int n = ::epoll_wait(epoll_.get(), &event, 1, -1);
        if (n < 0 && errno != EINTR)
            throw_errno("epoll_wait");
        if (n <= 0)
            continue;
        if (event.data.u64 == kStop)
            return false;
        if (event.data.u64 < listening_.size()) {
            if (accept(listening_[event.data.u64], out))
                return true;
            continue;
        }
        if (event.data.u64 < kFirstSilent) {
            if (receive(served_[event.data.u64 - kFirstServed], out))
                return true;
            continue;
        }
        if (take(event.data.u64 - kFirstSilent, out))
            return true;
    }
}

void AcceptedConnections::add(int fd, std::uint32_t events, std::uint64_t token) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = token;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) < 0)
        throw_errno("epoll_ctl");
}

bool AcceptedConnections::receive(const HandleBase::Served& from, IncomingConnection& out) {
    out = IncomingConnection{};
    out.handle = from.number;
    out.datagram.bytes.resize(kMaxDatagram);
    out.datagram.from_bytes = sizeof(out.datagram.from);
    const ssize_t n = ::recvfrom(from.fd, out.datagram.bytes.data(), kMaxDatagram, MSG_DONTWAIT,
                                 reinterpret_cast<sockaddr*>(&out.datagram.from), &out.datagram.from_bytes);
    out.datagram.bytes.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return n >= 0; // otherwise another machine has taken it
}

bool AcceptedConnections::accept(const Listeners::Listening& from, IncomingConnection& out) {
    IncomingConnection client = accept_client(from.fd, from.id);
    if (!client.fd) {
        if (errno == EMFILE || errno == ENFILE)
            ::usleep(1000); // the client stays in the backlog meanwhile
        return false;
    }
    char byte;
    if (given_ == Given::at_once || ::recv(client.fd.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0) {
        out = std::move(client);
        return true;
    }
    const int raw = client.fd.get();
    std::uint64_t token;
    {
        const std::lock_guard lock(mutex_);
        std::size_t slot = 0;
        while (slot < silent_.size() && silent_[slot].fd)
            ++slot;
        if (slot == silent_.size())
            silent_.emplace_back();
        silent_[slot] = std::move(client);
        token = kFirstSilent + slot;
    }
    add(raw, EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, token);
    return false;
}

bool AcceptedConnections::take(std::uint64_t slot, IncomingConnection& out) {
    const std::lock_guard lock(mutex_);
    out = std::move(silent_[slot]);
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, out.fd.get(), nullptr);
    char byte;
    // If the client has gone without a byte, no machine is needed.
    return ::recv(out.fd.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

} // namespace kvmserver
