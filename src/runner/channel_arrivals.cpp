#include "src/runner/channel_arrivals.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "tinykvm/base/error.hpp"
#include "tinykvm/machine/clock.hpp"

namespace kvmserver {

namespace {

// A request's head is sent right after its connection is made.
constexpr int kHeadPatienceMs = 10'000;

SocketAddress address_of(const link::Message& request) {
    SocketAddress address;
    if (request.address_bytes == 4) {
        auto* in = reinterpret_cast<sockaddr_in*>(&address.storage);
        in->sin_family = AF_INET;
        std::memcpy(&in->sin_addr, request.address.data(), 4);
        address.bytes = sizeof(*in);
    } else if (request.address_bytes == 16) {
        auto* in6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
        in6->sin6_family = AF_INET6;
        std::memcpy(&in6->sin6_addr, request.address.data(), 16);
        address.bytes = sizeof(*in6);
    }
    return address;
}

// Whether `fd` became readable, and not the stop.
bool wait_readable(int fd, const Stopper& stop, int patience_ms) {
    pollfd fds[2] = {{fd, POLLIN, 0}, {stop.fd(), POLLIN, 0}};
    for (;;) {
        const int n = ::poll(fds, 2, patience_ms);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            tinykvm::throw_errno("poll");
        return n > 0 && fds[0].revents != 0 && !stop.requested();
    }
}

} // namespace

ChannelArrivals::ChannelArrivals(int channel, std::uint32_t listener, First first, const Stopper& stop)
    : channel_(channel), first_(first), listener_(listener), stop_(stop) {
    ready_.kind = link::Kind::ready;
}

void ChannelArrivals::served(const Served& served) {
    ready_.exec_us = served.exec_ns / 1000;
    ready_.reset_us = served.reset_ns / 1000;
    ready_.cpu_us = (tinykvm::thread_cpu_ns() - begin_cpu_ns_) / 1000; // with the reset
    ready_.dirty_pages = served.pages_copied + served.pages_dropped;
    ready_.exits = served.exits;
}

bool ChannelArrivals::next(Arrival& out) {
    for (;;) {
        if (first_.begin_ns != 0) {
            ready_.restore_us = (tinykvm::host_mono_ns() - first_.begin_ns) / 1000;
            ready_.hot_bytes = first_.hot_bytes;
        }
        first_ = {};
        const link::Message ready = ready_;
        ready_ = {};
        if (!link::send(channel_, ready) || !wait_readable(channel_, stop_, -1))
            return false;
        auto received = link::receive(channel_, link::Wait::no);
        if (!received || received->message.kind != link::Kind::request || !received->fd)
            return false; // the daemon wants this machine no longer
        out.fd = std::move(received->fd);
        out.listener = listener_;
        out.own = true;
        out.peer = address_of(received->message);
        out.tell = [channel = channel_](request::Outcome outcome) {
            link::Message ended;
            ended.kind = link::Kind::ended;
            ended.outcome = outcome;
            link::send(channel, ended);
        };
        // A machine is resumed once, with the request in its hands; not at all for a client that went away.
        wait_readable(out.fd.get(), stop_, kHeadPatienceMs);
        char byte;
        if (::recv(out.fd.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0) {
            begin_cpu_ns_ = tinykvm::thread_cpu_ns();
            return true;
        }
        out.fd.reset();
    }
}

} // namespace kvmserver
