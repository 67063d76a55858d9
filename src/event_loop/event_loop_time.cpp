// What counts against a program's time limits.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "src/event_loop/event_loop.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {
// Ends an endless loop even on a host that has less than a third of a CPU for it.
constexpr unsigned kMinShare = 3;
} // namespace

void EventLoop::moved(std::size_t bytes) {
    moved_ += bytes;
    spent_.restart(host_mono_ns());
}

// A client that sends something after an answer begins a new request on its connection, or a WebSocket message.
void EventLoop::heard(Client& c) {
    c.heard_ns = host_mono_ns();
    if (c.answered) {
        c.began_ns = c.heard_ns;
        begin_request(c.heard_ns);
    }
    c.answered = false;
    c.asked = true;
}

// When the next client has waited for too long. A program may wait for its own timers and for peers, as in
// what_counts().
std::uint64_t EventLoop::next_overdue(bool stuck) const {
    std::uint64_t next = kForever;
    for (const Client& c : clients_) {
        if (!c.closed || !c.asked) // it waits for nothing
            continue;
        if (c.limit_ns && stuck)
            next = std::min(next, c.heard_ns + c.limit_ns);
        if (c.total_ns)
            next = std::min(next, c.began_ns + c.total_ns);
    }
    return next;
}

// Whether a client has waited for too long, and for as long the machine has neither waited nor sent anything.
bool EventLoop::hangs(std::uint64_t now_ns) const {
    return std::ranges::any_of(clients_, [&](const Client& c) {
        return c.closed && c.asked && c.limit_ns && now_ns >= std::max(c.heard_ns, alive_ns_) + c.limit_ns;
    });
}

// Ends the connections of clients that have waited for too long; the machine goes on. True if there was one.
bool EventLoop::end_overdue(Machine& machine, bool stuck) {
    const std::uint64_t now = until_.arrivals ? host_mono_ns() : 0;
    if (!until_.arrivals || now < next_overdue(stuck) || hangs(now))
        return false;
    for (std::uint32_t slot = 0; slot < clients_.size(); ++slot) {
        Client& c = clients_[slot];
        const bool total = c.total_ns && now >= c.began_ns + c.total_ns;
        if (!c.closed || !c.asked || (!total && (!stuck || !c.limit_ns || now < c.heard_ns + c.limit_ns)))
            continue;
        note_(fmt::format("a request was not done within {}; its connection is closed, the machine goes on",
                          total ? "--max-request-total" : "--max-request-time"));
        c.report_outcome(total ? request::Outcome::over_total : request::Outcome::no_progress);
        c.memory.reset();
        c.fd.reset();
        machine.connections().set_error(slot, ECONNRESET);
        c.failed = true; // until the program closes its side
        std::exchange(c.closed, nullptr)();
    }
    return true;
}

// While all waits count (boot), CPU time that a busy host gives to others does not count at all.
std::uint64_t EventLoop::spent(std::uint64_t now_ns) {
    return spent_.in_all(now_ns, until_.all_waits_count ? 0 : kMinShare);
}

std::uint64_t EventLoop::end_of_request() const {
    return until_.total_ns ? request_begin_ns_ + until_.total_ns : kForever;
}

void EventLoop::begin_request(std::uint64_t now_ns) {
    request_begin_ns_ = now_ns;
    cpu_begin_ns_.reset();
}

// Without such a limit the thread's CPU clock is not read, which takes a system call.
bool EventLoop::over_cpu() {
    if (!until_.cpu_ns)
        return false;
    const std::uint64_t used = thread_cpu_ns();
    if (!cpu_begin_ns_)
        cpu_begin_ns_ = used;
    return used - *cpu_begin_ns_ >= until_.cpu_ns;
}

bool EventLoop::over_limit(std::uint64_t now_ns) {
    if (until_.arrivals && hangs(now_ns))
        overrun_ = Overrun::computed;
    else if (over_cpu())
        overrun_ = Overrun::cpu;
    else if (now_ns >= end_of_request())
        overrun_ = Overrun::total;
    else if (until_.limit_ns && spent(now_ns) >= until_.limit_ns)
        overrun_ = spent_.why(until_.limit_ns);
    else
        return false;
    return true;
}

std::uint64_t EventLoop::limit_end(std::uint64_t now_ns, Overrun counts) {
    std::uint64_t end = end_of_request();
    if (until_.limit_ns && counts != Overrun::none)
        end = std::min(end, now_ns + until_.limit_ns - std::min(until_.limit_ns, spent(now_ns)));
    return end;
}

// A program may wait for its own timers and for peers that it connected to. It may not wait for nothing, and a client
// that it has answered may not keep the machine from others.
Overrun EventLoop::what_counts(Machine& machine, const Machine::Wait& wait,
                               const std::vector<Machine::WaitHandle>& handles) const {
    if (until_.limit_ns == 0)
        return Overrun::none;
    if (until_.all_waits_count)
        return Overrun::stuck;
    bool idle = true;
    for (std::uint32_t slot = 0; slot < clients_.size(); ++slot) {
        const Client& c = clients_[slot];
        ConnView view;
        // A client that sent FIN may be gone altogether; that shows only when something is sent to it.
        if (!c.open || c.outbound || c.gone || c.eof || !machine.connections().view(slot, view))
            continue;
        const bool answered = !c.one_request && !c.asked && view.want_rx;
        idle &= view.tx_pending() > 0 || answered;
    }
    if (idle)
        return Overrun::idle;
    const bool asks_others = waits_for_neighbour(machine) ||
                             std::any_of(handles.begin(), handles.end(), [](const auto& h) { return h.fd >= 0; });
    return asks_others || wait.deadline_host_ns != kForever ? Overrun::none : Overrun::stuck;
}

} // namespace kvmserver
