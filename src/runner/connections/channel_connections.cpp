#include "src/runner/connections/channel_connections.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "src/event_loop/event_loop.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/machine/clock.hpp"

namespace kvmserver {

namespace {

// The daemon sends a request's head right after it made the socket.
constexpr int kHeadPatienceMs = 10'000;

SocketAddress address_of(const protocol::Message& request) {
    SocketAddress address;
    if (request.address_bytes == 4) {
        auto* in = reinterpret_cast<sockaddr_in*>(&address.storage);
        in->sin_family = AF_INET;
        in->sin_port = htons(request.port);
        std::memcpy(&in->sin_addr, request.address.data(), 4);
        address.bytes = sizeof(*in);
    } else if (request.address_bytes == 16) {
        auto* in6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons(request.port);
        std::memcpy(&in6->sin6_addr, request.address.data(), 16);
        address.bytes = sizeof(*in6);
    }
    return address;
}

// Returns true if `fd` became readable, false on the stop or the time-out.
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

// `message`: other fields to send with the reply.
bool say_reply(int channel, const ChannelConnections::Held& reply, protocol::Message message) {
    message.kind = protocol::Kind::reply;
    message.reset = reply.closing == request::Closing::reset;
    return protocol::send_bytes(channel, message, reply.bytes, protocol::Wait::yes);
}

// The daemon's end of a request whose first bytes came with it.
class ChannelPeer final : public MemoryPeer {
public:
    // `hold`: where to keep a complete reply for the next `ready`; null: send it at once.
    ChannelPeer(int channel, bool more_follows, const Stopper& stop, std::optional<ChannelConnections::Held>* hold)
        : channel_(channel), more_follows_(more_follows), stop_(stop), hold_(hold) {}
    ~ChannelPeer() override {
        if (!answered_)
            say_reply(channel_, {{}, request::Closing::reset}, {});
    }
    // Before we send `connect`, only `cancel` can arrive during a request.
    bool gone() const override {
        pollfd channel{channel_, POLLIN, 0};
        return ::poll(&channel, 1, 0) > 0;
    }
    bool more_follows() const override { return more_follows_; }
    void reply(std::string bytes, request::Closing closing) override {
        answered_ = true;
        ChannelConnections::Held whole{std::move(bytes), closing};
        if (hold_)
            *hold_ = std::move(whole);
        else
            say_reply(channel_, whole, {});
    }
    tinykvm::UniqueFd connect() override {
        answered_ = true;
        protocol::Message wanted;
        wanted.kind = protocol::Kind::connect;
        if (!protocol::send(channel_, wanted))
            return {};
        while (wait_readable(channel_, stop_, -1)) {
            auto received = protocol::receive(channel_, protocol::Wait::no);
            if (!received)
                break;
            if (received->message.kind == protocol::Kind::connected)
                return std::move(received->fd);
        }
        return {}; // the machine is ending
    }

private:
    const int channel_;
    const bool more_follows_;
    const Stopper& stop_;
    std::optional<ChannelConnections::Held>* const hold_;
    bool answered_ = false;
};

static_assert(EventLoop::kMaxReceived <= protocol::kMaxInline && tinykvm::abi::kTxBytes <= protocol::kMaxInline);

} // namespace

ChannelConnections::ChannelConnections(int channel, std::uint32_t listener, First first, const Stopper& stop,
                                       Ports ports)
    : channel_(channel), first_(first), listener_(listener), stop_(stop), ports_(std::move(ports)),
      room_(std::make_unique_for_overwrite<char[]>(protocol::kMaxInline)) {
    ready_.kind = protocol::Kind::ready;
}

ChannelConnections::~ChannelConnections() {
    if (held_) // the machine could not be reset
        say_reply(channel_, *held_, {});
}

void ChannelConnections::served(const Served& served) {
    this->served(served, tinykvm::thread_cpu_ns() - begin_cpu_ns_); // includes the reset
}

void ChannelConnections::served(const Served& served, std::uint64_t cpu_ns) {
    ready_.exec_us = served.exec_ns / 1000;
    ready_.reset_us = served.reset_ns / 1000;
    ready_.cpu_us = cpu_ns / 1000;
    ready_.dirty_pages = served.pages_copied + served.pages_dropped;
    ready_.exits = served.exits;
}

void ChannelConnections::describe(const protocol::Received& request, IncomingConnection& out) {
    out.listener = listener_;
    out.own = true;
    out.peer = address_of(request.message);
    out.report_outcome = [channel = channel_](request::Outcome outcome) {
        protocol::Message ended;
        ended.kind = protocol::Kind::ended;
        ended.outcome = outcome;
        protocol::send(channel, ended);
    };
    out.stream = request.message.stream != protocol::Stream::no && request.fd;
}

ChannelConnections::Got ChannelConnections::take_next(IncomingConnection& out) {
    for (;;) {
        bool again = false;
        auto received =
            protocol::receive(channel_, protocol::Wait::no, &again, std::span(room_.get(), protocol::kMaxInline));
        if (!received)
            return again ? Got::nothing : Got::end;
        if (received->message.kind == protocol::Kind::cancel) // it concerned the previous request
            continue;
        if (received->message.kind != protocol::Kind::request)
            return Got::end;
        describe(*received, out);
        if (out.stream)
            take_stream(std::move(*received), out);
        else if (received->fd)
            out.fd = std::move(received->fd);
        else if (!take(*received, out))
            return Got::end;
        return Got::request;
    }
}

void ChannelConnections::when_idle(std::chrono::milliseconds after, std::function<void()> act) {
    idle_after_ = after;
    idle_ = std::move(act);
    wake_after(after);
}

// A time-out of the socket: it costs no system call for each request.
void ChannelConnections::wake_after(std::chrono::milliseconds after) const {
    const timeval time{after.count() / 1000, after.count() % 1000 * 1000};
    if (::setsockopt(channel_, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) < 0)
        tinykvm::throw_errno("setsockopt");
}

bool ChannelConnections::next(IncomingConnection& out) {
    for (bool say = true;;) {
        if (say && !say_ready())
            return false;
        // No poll() for the stop: it would cost one more system call. Whoever stops also shuts the channel down.
        bool nothing = false; // for so long
        auto received =
            protocol::receive(channel_, protocol::Wait::yes, &nothing, std::span(room_.get(), protocol::kMaxInline));
        if (stop_.requested())
            return false;
        if (nothing) {
            wake_after({});
            idled_ = true;
            idle_();
            say = false;
            continue;
        }
        if (idled_) {
            idled_ = false;
            wake_after(idle_after_);
        }
        if (received && received->message.kind == protocol::Kind::cancel) { // it concerned the previous request
            say = false;
            continue;
        }
        if (!received || received->message.kind != protocol::Kind::request)
            return false; // the daemon no longer wants this machine
        say = true;
        describe(*received, out);
        if (out.stream) {
            take_stream(std::move(*received), out);
            begin_cpu_ns_ = tinykvm::thread_cpu_ns();
            return true;
        }
        if (received->fd ? take_socket(std::move(received->fd), out) : take(*received, out)) {
            begin_cpu_ns_ = tinykvm::thread_cpu_ns();
            return true;
        }
    }
}

bool ChannelConnections::say_ready() {
    if (first_.begin_ns != 0) {
        ready_.restore_us = (tinykvm::host_mono_ns() - first_.begin_ns) / 1000;
        ready_.hot_bytes = first_.hot_bytes;
    }
    first_ = {};
    protocol::Message ready = ready_;
    ready_ = {};
    if (!held_)
        return protocol::send(channel_, ready);
    ready.ready = 1;
    const Held reply = *std::move(held_);
    held_.reset();
    return say_reply(channel_, reply, ready);
}

bool ChannelConnections::take(const protocol::Received& request, IncomingConnection& out) {
    if (request.bytes.size() > EventLoop::kMaxReceived)
        return false;
    out.received = request.bytes;
    out.memory = std::make_unique<ChannelPeer>(channel_, request.message.more_follows != 0, stop_,
                                               request.message.others_wait ? &held_ : nullptr);
    return true;
}

// Waits for the request's first byte, so that the machine is resumed once, and not at all for a client that has gone.
bool ChannelConnections::take_socket(tinykvm::UniqueFd socket, IncomingConnection& out) const {
    wait_readable(socket.get(), stop_, kHeadPatienceMs);
    char byte;
    if (::recv(socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0)
        return false;
    out.fd = std::move(socket);
    return true;
}

// The client may say nothing until the program does.
void ChannelConnections::take_stream(protocol::Received request, IncomingConnection& out) const {
    out.fd = std::move(request.fd);
    const std::uint16_t at = request.message.listen_port;
    if (request.message.stream == protocol::Stream::at_listener) {
        out.listener = at;
        return;
    }
    const auto there = ports_.find(at);
    out.listener = there == ports_.end() ? listener_ : there->second;
}

} // namespace kvmserver
