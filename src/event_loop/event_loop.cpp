#include "src/event_loop/event_loop.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tinykvm/base/error.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

// Within this time of a timer's expiry a machine is not quiescent.
constexpr std::uint64_t kTimerSoonNs = 20'000'000;

// Whether no timer is due soon. A program with a heartbeat never has all its timers far away: after a second any moment
// will do.
bool is_quiet(const Machine::Wait& wait, std::uint64_t& since) {
    const std::uint64_t now = host_mono_ns();
    if (since == 0)
        since = now;
    return wait.deadline_host_ns == kForever || wait.deadline_host_ns > now + kTimerSoonNs ||
           now > since + 1'000'000'000;
}

std::span<const std::uint8_t> bytes_of(const sockaddr_storage& address, socklen_t bytes) {
    return {reinterpret_cast<const std::uint8_t*>(&address), std::min<std::size_t>(bytes, abi::kAddressBytes)};
}

// An address on this host, for a client that has none.
socklen_t loopback(std::uint32_t family, sockaddr_storage& out) {
    constexpr std::uint16_t kPort = 40000;
    if (family == AF_INET) {
        auto* in = reinterpret_cast<sockaddr_in*>(&out);
        in->sin_family = AF_INET;
        in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        in->sin_port = htons(kPort);
        return sizeof(*in);
    }
    auto* in6 = reinterpret_cast<sockaddr_in6*>(&out);
    in6->sin6_family = AF_INET6;
    in6->sin6_addr = in6addr_loopback;
    in6->sin6_port = htons(kPort);
    return sizeof(*in6);
}

} // namespace

EventLoop::EventLoop(Listeners& listeners, std::function<void(const std::string&)> note, const Stopper& stop)
    : listeners_(listeners), stop_request_(stop), note_(std::move(note)) {}
EventLoop::EventLoop(Own own, std::function<void(const std::string&)> note, const Stopper& stop)
    : own_listeners_(std::make_unique<Listeners>()), listeners_(*own_listeners_), dry_(own == Own::dry),
      stop_request_(stop), note_(std::move(note)) {
    own_listeners_->set_dry(dry_);
}
EventLoop::~EventLoop() = default;

void EventLoop::close_own_listeners() {
    if (own_listeners_)
        own_listeners_->close_all();
}

// The program gets the errno. The operator gets a line too, since not every program reports the failure.
int EventLoop::report_failure(int result, const std::vector<std::uint8_t>& address) {
    if (result < 0)
        note_(fmt::format(
            "the program cannot listen on {}: {}",
            to_string(reinterpret_cast<const sockaddr*>(address.data()), static_cast<socklen_t>(address.size())),
            std::strerror(-result)));
    return result;
}

int EventLoop::bind(ListenerState& socket) {
    const int result = listeners_.bind(socket);
    // Failure is normal for Unix sockets: programs probe names.
    return socket.family == AF_UNIX ? result : report_failure(result, socket.address);
}
int EventLoop::listen(ListenerState& socket, int backlog) {
    return report_failure(listeners_.listen(socket, backlog), socket.address);
}
void EventLoop::unlisten(std::uint32_t id) { listeners_.close(id); }
BoundSocket EventLoop::take_bound(std::uint32_t id) { return listeners_.take_bound(id); }

bool EventLoop::should_stop() { return stop_request_.requested() || over_limit(host_mono_ns()); }

EventLoop::Client& EventLoop::client(std::uint32_t slot) {
    if (clients_.size() <= slot)
        clients_.resize(slot + 1);
    return clients_[slot];
}

bool EventLoop::attach(Machine& machine, IncomingConnection incoming) {
    UniqueFd fd = std::move(incoming.fd);
    const std::uint32_t listener = incoming.listener;
    sockaddr_storage peer = incoming.peer.storage, local{};
    socklen_t peer_bytes = incoming.peer.bytes, local_bytes = 0;
    const auto state = std::find_if(machine.listeners().begin(), machine.listeners().end(),
                                    [&](const ListenerState& l) { return l.id == listener; });
    bool as_listener = incoming.own; // the program sees its own listening address
    if (!incoming.own) {
        local_bytes = sizeof(local);
        if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&local), &local_bytes) < 0)
            local_bytes = 0;
        if (local.ss_family != AF_UNIX) {
            // The guest already batches what it sends; Nagle's algorithm would only delay the last segment.
            const int on = 1;
            ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        }
        // With --listen the client's address family may differ from the program's.
        if (state != machine.listeners().end() && (state->family == AF_UNIX) != (local.ss_family == AF_UNIX)) {
            as_listener = true;
            peer_bytes = 0;
        }
    }
    if (as_listener && state != machine.listeners().end()) {
        local_bytes = static_cast<socklen_t>(std::min(state->address.size(), sizeof(local)));
        std::memcpy(&local, state->address.data(), local_bytes);
        if (peer_bytes == 0 && state->family != AF_UNIX)
            peer_bytes = loopback(state->family, peer);
    }
    const auto slot = machine.connections().offer(listener, bytes_of(peer, peer_bytes), bytes_of(local, local_bytes));
    if (!slot) {
        if (incoming.closed)
            incoming.closed();
        return false;
    }
    Client& c = client(*slot);
    c = Client{};
    c.open = true;
    c.fd = std::move(fd);
    c.memory = std::move(incoming.memory);
    c.listener = listener;
    c.one_request = incoming.own && !incoming.stream;
    if (stop_at_arrival_)
        machine.stop_soon();
    ++open_;
    ++attached_;
    const std::uint64_t now = host_mono_ns();
    c.report_outcome = std::move(incoming.report_outcome);
    c.closed = std::move(incoming.closed);
    c.limit_ns = incoming.limit_ns;
    c.total_ns = incoming.total_ns;
    c.began_ns = c.heard_ns = now;
    if (open_ == 1) // otherwise it belongs to a request that is under way
        begin_request(now);
    spent_.restart(now);
    ConnView view;
    if (!machine.connections().view(*slot, view))
        return true;
    if (c.memory)
        return deliver(machine, *slot, view, incoming.received);
    receive(machine, *slot, view);
    return true;
}

// Gives a datagram to a machine that waits at one of its image's sockets.
void EventLoop::give(Machine& machine, std::int32_t handle, Datagram datagram) {
    machine.handles().give(handle, std::move(datagram));
    const int fd = machine.handles().fd(handle);
    const auto handles = machine.wait_handles();
    for (std::uint32_t i = 0; i < handles.size(); ++i)
        machine.handle_ready(i, handles[i].fd == fd ? short{POLLIN} : short{0});
    begin_request(host_mono_ns());
    spent_.restart(request_begin_ns_);
}

bool EventLoop::accept_some(Machine& machine) {
    bool news = false;
    while (until_.arrivals && !full()) {
        IncomingConnection client;
        if (!until_.arrivals->next(client))
            break;
        if (!attach(machine, std::move(client)))
            return news;
        news = true;
    }
    for (const Listeners::Listening& l : listeners_.all()) {
        for (int i = 0; i < 64 && !full(); ++i) {
            IncomingConnection client = accept_client(l.fd, l.id);
            if (!client.fd)
                break;
            if (!attach(machine, std::move(client)))
                return news;
            news = true;
        }
    }
    return news;
}

void EventLoop::poll(Machine& machine) {
    exchange(machine);
    for (std::uint32_t slot = 0; slot < clients_.size(); ++slot) {
        ConnView view;
        if (clients_[slot].open && machine.connections().view(slot, view) && view.state != abi::kConnClosed)
            receive(machine, slot, view);
    }
    if (accepting_)
        accept_some(machine);
    end_overdue(machine, false);
    const auto handles = machine.wait_handles();
    if (handles.empty())
        return;
    std::vector<pollfd> fds;
    fds.reserve(handles.size());
    for (const auto& h : handles)
        fds.push_back({h.fd, h.events, 0});
    if (::poll(fds.data(), fds.size(), 0) < 0)
        return;
    for (std::uint32_t i = 0; i < fds.size(); ++i)
        machine.handle_ready(i, handles[i].fd < 0 ? short{POLLERR} : fds[i].revents);
}

bool EventLoop::wait(Machine& machine, const Until& until, LoopEnd& end) {
    const Machine::Wait w = machine.wait();
    const auto handles = machine.wait_handles();
    for (;;) {
        std::vector<pollfd> fds;
        fds.push_back({stop_request_.fd(), POLLIN, 0});
        for (const auto& h : handles)
            fds.push_back({h.fd, h.events, 0});
        const std::size_t first_listener = fds.size();
        if (until.accepting && !full()) {
            if (until.arrivals)
                fds.push_back({until.arrivals->fd(), POLLIN, 0});
            for (const Listeners::Listening& l : listeners_.all())
                fds.push_back({l.fd, POLLIN, 0});
        }
        const std::size_t first_client = fds.size();
        std::vector<std::uint32_t> slots;
        bool sends = false;
        for (std::uint32_t slot = 0; slot < clients_.size(); ++slot) {
            const Client& c = clients_[slot];
            if (!c.open)
                continue;
            if (!have_socket(machine, slot))
                return true;
            ConnView view;
            if (!machine.connections().view(slot, view)) {
                contract_broken_ = true;
                return true;
            }
            short events = 0;
            if (view.state != abi::kConnClosed && view.rx_room() > 0 && !c.eof && !c.failed)
                events |= POLLIN;
            if (view.tx_pending() > 0 && !c.failed)
                events |= POLLOUT;
            sends |= (events & POLLOUT) != 0;
            // Skip a connection that failed or is closed on both sides: polling it would only spin.
            if (events == 0 && (c.failed || c.gone || (c.eof && c.shut)))
                continue;
            fds.push_back({c.fd.get(), events, 0});
            slots.push_back(slot);
        }
        const std::size_t debugger = fds.size();
        if (machine.debugger())
            fds.push_back({machine.debugger()->fd(), POLLIN, 0});
        const Overrun counts = what_counts(machine, w, handles);
        timespec timeout{};
        const std::uint64_t now = host_mono_ns();
        if (over_limit(now)) {
            end = LoopEnd::timeout;
            return false;
        }
        if ((until.ready || until.returned) && fds.size() == first_client && handles.empty() &&
            w.deadline_host_ns == kForever) {
            end = LoopEnd::stuck;
            return false;
        }
        // Unless its client's last bytes are still to be read.
        const bool for_ever = dry_ && until.client_said_all && !sends && handles.empty() &&
                              w.deadline_host_ns == kForever && !waits_for_neighbour(machine);
        // Only another client could make it do something.
        const bool stuck = until.arrivals && handles.empty() && w.deadline_host_ns == kForever;
        if (end_overdue(machine, stuck))
            return true;
        const std::uint64_t stop_at = for_ever ? now
                                               : std::min({w.deadline_host_ns, limit_end(now, counts),
                                                           until.arrivals ? next_overdue(stuck) : kForever});
        if (stop_at != kForever && stop_at > now) {
            timeout.tv_sec = static_cast<time_t>((stop_at - now) / 1'000'000'000);
            timeout.tv_nsec = static_cast<long>((stop_at - now) % 1'000'000'000);
        }
        const int n = ::ppoll(fds.data(), fds.size(), stop_at == kForever ? nullptr : &timeout, nullptr);
        if (n < 0 && errno != EINTR)
            throw_errno("ppoll");
        if (stop_request_.requested()) {
            end = LoopEnd::requested;
            return false;
        }
        if (for_ever && n == 0) {
            end = LoopEnd::stuck;
            return false;
        }
        bool news = false;
        alive_ns_ = host_mono_ns();
        spent_.waited(alive_ns_ - now, counts);
        if (n > 0 && debugger < fds.size() && fds[debugger].revents && machine.debugger()->wants_stop())
            if (auto stop = machine.stop_waiting()) {
                stop_ = std::move(*stop);
                end = LoopEnd::stopped;
                return false;
            }
        if (n > 0) {
            for (std::uint32_t i = 0; i < handles.size(); ++i) {
                const short revents = handles[i].fd < 0 ? short{POLLERR} : fds[1 + i].revents;
                machine.handle_ready(i, revents);
                news |= revents != 0;
            }
            for (std::size_t i = first_listener; i < first_client; ++i)
                if (fds[i].revents) {
                    news |= accept_some(machine);
                    break;
                }
            for (std::size_t i = 0; i < slots.size(); ++i) {
                const short revents = fds[first_client + i].revents;
                ConnView view;
                if (revents == 0 || !clients_[slots[i]].open || !machine.connections().view(slots[i], view))
                    continue;
                if (revents & POLLOUT)
                    news |= send_pending(machine, slots[i], view);
                if ((revents & (POLLIN | POLLHUP | POLLERR)) && view.state != abi::kConnClosed)
                    news |= receive(machine, slots[i], view);
                if (clients_[slots[i]].eof && (revents & (POLLERR | POLLHUP)))
                    clients_[slots[i]].gone = true;
                if (view.state == abi::kConnClosed && (revents & (POLLERR | POLLHUP)))
                    clients_[slots[i]].failed = true;
                if (view.state == abi::kConnClosed && (view.tx_pending() == 0 || clients_[slots[i]].failed)) {
                    close_client(machine, slots[i], view.reset);
                }
            }
            if (until.one_connection && is_over(machine)) {
                end = LoopEnd::closed;
                return false;
            }
        }
        if (news || contract_broken_ || host_mono_ns() >= w.deadline_host_ns)
            return true;
    }
}

LoopEnd EventLoop::run(Machine& machine, const Until& until) {
    accepting_ = until.accepting;
    contract_broken_ = false;
    until_ = until;
    overrun_ = Overrun::none;
    std::uint64_t quiet_since = 0;
    if (until.all_waits_count)
        spent_.restart(host_mono_ns());
    if (until.returned) {
        begin_request(host_mono_ns());
        spent_.restart(request_begin_ns_);
    }
    over_cpu(); // from here on it counts
    for (;;) {
        stop_ = machine.run();
        if (stop_.kind == StopKind::interrupted)
            return stop_request_.requested() ? LoopEnd::requested : LoopEnd::timeout;
        if (stop_.kind != StopKind::waiting) {
            exchange(machine); // send what the program wrote before it ended
            return LoopEnd::stopped;
        }
        const bool news = exchange(machine);
        if (contract_broken_) {
            stop_ = Stop{StopKind::broken, 0, "the connection table holds nonsense"};
            return LoopEnd::stopped;
        }
        if (until.one_connection && is_over(machine))
            return LoopEnd::closed;
        if (until.returned && machine.callable())
            return LoopEnd::returned;
        if (news)
            continue;
        const Machine::Wait w = machine.wait();
        if (until.one_datagram && open_ == 0 && !machine.waits_for_own() && !waits_for_neighbour(machine) &&
            (w.deadline_host_ns == kForever || w.deadline_host_ns > host_mono_ns() + kTimerSoonNs))
            return LoopEnd::closed;
        if (w.runnable && (until.ready || until.returned)) { // a thread is ready for calls, and others go on
            if (stop_request_.requested())
                return LoopEnd::requested;
            if (over_limit(host_mono_ns()))
                return LoopEnd::timeout;
            continue;
        }
        const bool waits_for_calls = until.ready && machine.callable();
        if ((waits_for_calls || (until.quiescent && w.listening && !machine.listeners().empty())) && open_ == 0 &&
            is_quiet(w, quiet_since))
            return LoopEnd::quiescent;
        LoopEnd end;
        if (!wait(machine, until, end))
            return end;
        if (contract_broken_) {
            stop_ = Stop{StopKind::broken, 0, "the connection table holds nonsense"};
            return LoopEnd::stopped;
        }
    }
}

} // namespace kvmserver
