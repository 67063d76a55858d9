#include "src/runner/http_mode.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "src/event_loop/event_loop.hpp"
#include "src/setup/report.hpp"
#include "src/setup/setup.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/stream_pair.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

// Most requests that wait for a machine; further ones get 503.
constexpr unsigned kMaxWaiting = 1024;
constexpr std::uint64_t kPatienceNs = 30'000'000'000; // the longest wait in the queue
constexpr std::uint64_t kDrainPatienceNs = 30'000'000'000;
constexpr std::chrono::seconds kLastWords{1}; // time to send the last refusals

http::Options front_options(unsigned machines) {
    http::Options out;
    out.threads = 1 + machines / 8; // a front thread serves some 50,000 requests a second
    out.progress_timeout = {};      // the worker enforces --max-request-time
    out.connect_timeout = {};       // the scheduler enforces kPatienceNs
    return out;
}

SocketAddress address_of(const std::string& ip) {
    SocketAddress address;
    auto* in = reinterpret_cast<sockaddr_in*>(&address.storage);
    auto* in6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
    if (::inet_pton(AF_INET, ip.c_str(), &in->sin_addr) == 1) {
        in->sin_family = AF_INET;
        address.bytes = sizeof(*in);
    } else if (::inet_pton(AF_INET6, ip.c_str(), &in6->sin6_addr) == 1) {
        in6->sin6_family = AF_INET6;
        address.bytes = sizeof(*in6);
    }
    return address;
}

request::Problem no_socket() {
    request::Circumstances of;
    of.reason = std::strerror(errno);
    return problem_for(request::Outcome::no_socket, of);
}

// Tells the front why a program's connection ended before its reply was complete.
class MachineLease final : public http::Lease {
public:
    // `limits` belong to the setup, which outlives all requests.
    MachineLease(std::shared_ptr<std::atomic<request::Outcome>> outcome, const Limits& limits)
        : outcome_(std::move(outcome)), limits_(limits) {}

    std::optional<request::Problem> failure() const override {
        const request::Outcome outcome = outcome_->load(std::memory_order_acquire);
        if (outcome == request::Outcome::ok)
            return std::nullopt;
        request::Circumstances of;
        of.progress_seconds = limits_.request_seconds;
        of.total_seconds = limits_.request_total_seconds;
        of.cpu_seconds = limits_.request_cpu_seconds;
        return problem_for(outcome, of);
    }

private:
    std::shared_ptr<std::atomic<request::Outcome>> outcome_; // ok: as far as is known
    const Limits& limits_;
};

// The client's end of a request whose first bytes were given to the machine.
class RequestPeer final : public MemoryPeer {
public:
    RequestPeer(std::shared_ptr<http::RequestWaiter> waiter, bool more_follows, const std::atomic<bool>& others_wait)
        : waiter_(std::move(waiter)), more_follows_(more_follows), others_wait_(others_wait) {}
    ~RequestPeer() override {
        if (waiter_)
            waiter_->replied({}, request::Closing::reset, http::Sender::front);
    }
    bool gone() const override { return waiter_->abandoned(); }
    bool more_follows() const override { return more_follows_; }
    void reply(std::string bytes, request::Closing closing) override {
        // If others wait, the machine's thread is the bottleneck: the front sends the reply. Otherwise sending it here
        // saves the client a thread switch.
        const bool busy = others_wait_.load(std::memory_order_relaxed);
        waiter_->replied(std::move(bytes), closing, busy ? http::Sender::front : http::Sender::caller);
        waiter_ = nullptr;
    }
    UniqueFd connect() override {
        auto [ours, theirs] = stream_pair();
        if (theirs)
            waiter_->connected_for_rest(std::move(theirs));
        else
            waiter_->failed(no_socket());
        waiter_ = nullptr;
        return std::move(ours);
    }

private:
    std::shared_ptr<http::RequestWaiter> waiter_; // null once it was answered
    bool more_follows_;
    const std::atomic<bool>& others_wait_; // owned by the HttpMode, which outlives its machines
};

} // namespace

// The request source of one machine, for its thread.
class HttpMode::Machine final : public ConnectionSource {
public:
    explicit Machine(HttpMode& mode) : mode_(mode) {}
    bool next(IncomingConnection& out) override;

private:
    friend class HttpMode;
    bool ready(std::unique_lock<std::mutex>& lock);

    HttpMode& mode_;
    // Guarded by the mutex of `mode_`:
    std::optional<request::MachineId> id_; // none before it is ready for the first time
    std::optional<Request> assigned_;
    std::condition_variable changed_;
};

HttpMode::HttpMode(Listeners& listeners, const Limits& limits, unsigned machines)
    : listeners_(listeners), limits_(limits), front_(front_options(machines), *this, nullptr) {
    const auto listening = listeners.all();
    if (listening.empty())
        throw UserError(ExitCode::failure, "--http: the program does not listen");
    listener_ = listening.front().id;
    if (listening.size() > 1)
        note_line(fmt::format("--http serves the program's first address only, of {}", listening.size()));
    UniqueFd socket(::fcntl(listening.front().fd, F_DUPFD_CLOEXEC, 0));
    if (!socket)
        throw_errno("dup listening socket");
    front_.add_listener(std::move(socket));

    function_ =
        scheduler_.add({.min = machines, .max = machines, .idle_ns = 0, .queue = kMaxWaiting, .queue_ns = kPatienceNs});
    request::Actions actions;
    scheduler_.adopt(function_, host_mono_ns(), actions);
    Refusals none;
    carry_out(actions, none);
}

HttpMode::~HttpMode() = default;

void HttpMode::serve(const Stopper& asked) {
    front_.start();
    constexpr int kLookMs = 1000;
    pollfd stop{asked.fd(), POLLIN, 0};
    while (::poll(&stop, 1, kLookMs) <= 0)
        look_at_the_clock();
    // Closes the front's copy too: new clients are refused instead of waiting in the backlog.
    listeners_.close(listener_);
    front_.drain();
    const std::uint64_t end_ns = host_mono_ns() + kDrainPatienceNs;
    while (!front_.wait_drained(std::chrono::milliseconds(kLookMs)) && host_mono_ns() < end_ns)
        look_at_the_clock();
    end();
}

void HttpMode::end() {
    Refusals refusals;
    {
        const std::lock_guard lock(mutex_);
        ended_ = true;
        request::Actions actions;
        scheduler_.stop(host_mono_ns(), actions);
        carry_out(actions, refusals);
        for (Machine& machine : machines_)
            machine.changed_.notify_one();
        machine_wanted_.notify_all();
    }
    hard_stop_.request();
    const bool any = !refusals.empty();
    report_refusals(std::move(refusals));
    if (any)
        front_.wait_drained(kLastWords);
}

ConnectionSource& HttpMode::add_machine() {
    const std::lock_guard lock(mutex_);
    return machines_.emplace_back(*this);
}

std::unique_ptr<http::Lease> HttpMode::connect(const http::RequestInfo& info,
                                               std::shared_ptr<http::RequestWaiter> waiter) {
    auto outcome = std::make_shared<std::atomic<request::Outcome>>(request::Outcome::ok);
    auto lease = std::make_unique<MachineLease>(outcome, limits_);
    http::RequestWaiter& who = *waiter;
    Request request{std::move(waiter), std::move(outcome), std::string(info.client_ip), std::string(info.opening),
                    info.more_follows};
    Refusals refusals;
    {
        const std::lock_guard lock(mutex_);
        const request::RequestId id{next_request_++};
        who.on_abandon = [this, id] { abandon(id); };
        waiting_.emplace(id, std::move(request));
        request::Actions actions;
        scheduler_.arrive(id, function_, host_mono_ns(), actions);
        carry_out(actions, refusals);
    }
    report_refusals(std::move(refusals));
    return lease;
}

void HttpMode::abandon(request::RequestId id) {
    Request request; // destroyed without the lock
    const std::lock_guard lock(mutex_);
    scheduler_.abandon(id);
    others_wait_ = scheduler_.waiting() != 0;
    if (const auto found = waiting_.find(id); found != waiting_.end()) {
        request = std::move(found->second);
        waiting_.erase(found);
    }
}

void HttpMode::look_at_the_clock() {
    Refusals refusals;
    {
        const std::lock_guard lock(mutex_);
        request::Actions actions;
        scheduler_.tick(host_mono_ns(), actions);
        carry_out(actions, refusals);
    }
    report_refusals(std::move(refusals));
}

// Handles the actions that can occur here: there is one worker, this process, and it keeps its machines for its whole
// life.
void HttpMode::carry_out(const request::Actions& actions, Refusals& refusals) {
    for (const request::Action& action : actions) {
        if (const auto* assign = std::get_if<request::Assign>(&action)) {
            carry_out(*assign);
        } else if (const auto* refuse = std::get_if<request::Refuse>(&action)) {
            carry_out(*refuse, refusals);
        } else if (const auto* add = std::get_if<request::AddMachine>(&action)) {
            wanted_.push_back(add->machine);
            machine_wanted_.notify_one();
        } else if (const auto* start = std::get_if<request::StartWorker>(&action)) {
            request::Actions next;
            scheduler_.worker_started(start->worker, host_mono_ns(), next);
            carry_out(next, refusals);
        }
    }
    others_wait_ = scheduler_.waiting() != 0;
}

void HttpMode::carry_out(const request::Assign& assign) {
    const auto found = waiting_.find(assign.request);
    const auto machine = std::ranges::find(machines_, assign.machine, &Machine::id_);
    machine->assigned_ = std::move(found->second);
    machine->changed_.notify_one();
    waiting_.erase(found);
}

void HttpMode::carry_out(const request::Refuse& refuse, Refusals& refusals) {
    request::Circumstances of;
    of.waiting = refuse.waiting;
    const auto found = waiting_.find(refuse.request);
    refusals.push_back({std::move(found->second.waiter), problem_for(refuse.why, of)});
    waiting_.erase(found);
}

void HttpMode::report_refusals(Refusals refusals) {
    for (Refusal& refusal : refusals)
        refusal.waiter->failed(std::move(refusal.problem));
}

bool HttpMode::Machine::next(IncomingConnection& out) {
    std::unique_lock lock(mode_.mutex_);
    if (!ready(lock))
        return false;
    for (;;) {
        changed_.wait(lock, [this] { return mode_.ended_ || assigned_; });
        std::optional<Request> request = std::move(assigned_);
        assigned_.reset();
        const bool ended = mode_.ended_;
        lock.unlock();
        if (request && ended)
            request->waiter->failed(problem_for(request::Outcome::stopped));
        if (ended)
            return false;
        if (!request->waiter->abandoned()) { // otherwise no machine is needed
            out = mode_.connection_of(std::move(*request));
            if (out.memory || out.fd)
                return true;
        }
        lock.lock();
        request::Actions actions;
        Refusals none;
        mode_.scheduler_.not_assigned(*id_, host_mono_ns(), actions);
        mode_.carry_out(actions, none);
    }
}

// Reports that the machine is clean. Returns false if the server is ending.
bool HttpMode::Machine::ready(std::unique_lock<std::mutex>& lock) {
    if (!id_) {
        mode_.machine_wanted_.wait(lock, [this] { return mode_.ended_ || !mode_.wanted_.empty(); });
        if (mode_.ended_)
            return false;
        id_ = mode_.wanted_.front();
        mode_.wanted_.pop_front();
    }
    request::Actions actions;
    Refusals refusals;
    mode_.scheduler_.machine_ready(*id_, host_mono_ns(), actions);
    mode_.carry_out(actions, refusals);
    if (!refusals.empty()) {
        lock.unlock();
        report_refusals(std::move(refusals));
        lock.lock();
    }
    return true;
}

// The result is empty if no socket could be made; the client has then been told.
IncomingConnection HttpMode::connection_of(Request request) const {
    IncomingConnection out;
    out.listener = listener_;
    out.own = true;
    out.peer = address_of(request.client_ip);
    out.report_outcome = [outcome = std::move(request.outcome)](request::Outcome how) {
        outcome->store(how, std::memory_order_release);
    };
    if (request.opening.size() <= EventLoop::kMaxReceived) {
        out.received = std::move(request.opening);
        out.memory = std::make_unique<RequestPeer>(std::move(request.waiter), request.more_follows, others_wait_);
        return out;
    }
    auto [ours, theirs] = stream_pair();
    out.fd = std::move(ours);
    if (theirs)
        request.waiter->connected(std::move(theirs));
    else
        request.waiter->failed(no_socket());
    return out;
}

} // namespace kvmserver
