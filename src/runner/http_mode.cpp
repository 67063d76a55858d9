#include "src/runner/http_mode.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "tinykvm/base/error.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

// Requests that wait for a machine; beyond it clients are told to come again.
constexpr std::size_t kMostWaiting = 1024;
constexpr std::uint64_t kPatienceNs = 30'000'000'000; // with which they wait
constexpr std::uint64_t kDrainPatienceNs = 30'000'000'000;
constexpr std::chrono::seconds kLastWords{1}; // to send those that got no machine until then

http::Options front_options(const Options& options) {
    http::Options out;
    out.threads = 1 + options.threads / 8; // a front thread serves some 50,000 requests a second
    out.progress_timeout = {};             // --max-request-time is the worker's to enforce
    out.connect_timeout = {};              // the queue's is give_up_late_ones()
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

// Neither, with errno set, when the system has no more.
std::pair<UniqueFd, UniqueFd> socket_pair() {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return {};
    return {UniqueFd(pair[0]), UniqueFd(pair[1])};
}

request::Problem no_socket() {
    request::Circumstances of;
    of.reason = std::strerror(errno);
    return problem_for(request::Outcome::no_socket, of);
}

// Tells the front why a program's connection ended before its reply did.
class MachineLease final : public http::Lease {
public:
    // The limits are of the setup, which outlives all requests.
    MachineLease(std::shared_ptr<std::atomic<request::Outcome>> outcome, const Limits& limits)
        : outcome_(std::move(outcome)), limits_(limits) {}

    std::optional<request::Problem> failure() const override {
        const request::Outcome outcome = outcome_->load(std::memory_order_acquire);
        if (outcome == request::Outcome::ok)
            return std::nullopt;
        request::Circumstances of;
        of.progress_seconds = limits_.request_seconds;
        of.total_seconds = limits_.request_total_seconds;
        return problem_for(outcome, of);
    }

private:
    std::shared_ptr<std::atomic<request::Outcome>> outcome_; // ok: as far as is known
    const Limits& limits_;
};

// Of a request whose opening the machine has been given.
class RequestPeer final : public MemoryPeer {
public:
    RequestPeer(std::shared_ptr<http::RequestWaiter> waiter, std::unique_ptr<http::Lease> lease, bool more_follows,
                const std::atomic<bool>& others_wait)
        : waiter_(std::move(waiter)), lease_(std::move(lease)), more_follows_(more_follows), others_wait_(others_wait) {
    }
    ~RequestPeer() override {
        if (waiter_)
            waiter_->replied({}, http::Closing::reset, http::Sender::front, std::move(lease_));
    }
    bool gone() const override { return waiter_->abandoned(); }
    bool more_follows() const override { return more_follows_; }
    void reply(std::string bytes, http::Closing closing) override {
        // With others waiting for the machine its thread is what is short, else the client's time is.
        const bool busy = others_wait_.load(std::memory_order_relaxed);
        waiter_->replied(std::move(bytes), closing, busy ? http::Sender::front : http::Sender::caller,
                         std::move(lease_));
        waiter_ = nullptr;
    }
    UniqueFd connect() override {
        auto [ours, theirs] = socket_pair();
        if (theirs)
            waiter_->connected_for_rest(std::move(theirs), std::move(lease_));
        else
            waiter_->failed(no_socket(), std::move(lease_));
        waiter_ = nullptr;
        return std::move(ours);
    }

private:
    std::shared_ptr<http::RequestWaiter> waiter_; // until it has its answer
    std::unique_ptr<http::Lease> lease_;
    bool more_follows_;
    const std::atomic<bool>& others_wait_; // of the HttpMode, which outlives its machines
};

} // namespace

HttpMode::HttpMode(const Setup& setup, const Options& options)
    : listeners_(*setup.listeners), limits_(setup.env.limits), front_(front_options(options), *this, nullptr) {
    const auto listening = setup.listeners->all();
    if (listening.empty())
        throw UserError(ExitCode::failure, "--http: the program does not listen");
    listener_ = listening.front().id;
    if (listening.size() > 1)
        note_line(fmt::format("--http serves the program's first address only, of {}", listening.size()));
    UniqueFd socket(::fcntl(listening.front().fd, F_DUPFD_CLOEXEC, 0));
    if (!socket)
        throw_errno("dup listening socket");
    front_.add_listener(std::move(socket));
}

void HttpMode::serve() {
    front_.start();
    constexpr int kLookMs = 1000;
    pollfd stop{StopSignal::instance().fd(), POLLIN, 0};
    while (::poll(&stop, 1, kLookMs) <= 0)
        give_up_late_ones();
    listeners_.close(listener_); // with the front's copy: who comes now is refused, and does not wait for nothing
    front_.drain();
    const std::uint64_t end_ns = host_mono_ns() + kDrainPatienceNs;
    while (!front_.wait_drained(std::chrono::milliseconds(kLookMs)) && host_mono_ns() < end_ns)
        give_up_late_ones();
    end();
}

void HttpMode::end() {
    std::deque<Waiting> left;
    {
        const std::lock_guard lock(mutex_);
        ended_ = true;
        left.swap(queue_);
    }
    for (const Waiting& request : left)
        request.waiter->failed(problem_for(request::Outcome::stopped));
    hard_stop_.request();
    changed_.notify_all();
    if (!left.empty())
        front_.wait_drained(kLastWords);
}

void HttpMode::connect(const http::RequestInfo& request, std::shared_ptr<http::RequestWaiter> waiter) {
    Waiting waiting{std::move(waiter), std::string(request.client_ip), std::string(request.opening),
                    request.more_follows, host_mono_ns()};
    bool ended = false;
    {
        const std::lock_guard lock(mutex_);
        ended = ended_;
        if (!ended && queue_.size() < kMostWaiting) {
            queue_.push_back(std::move(waiting));
            others_wait_ = true;
        }
    }
    if (!waiting.waiter)
        return changed_.notify_one();
    request::Circumstances of;
    of.waiting = kMostWaiting;
    waiting.waiter->failed(problem_for(ended ? request::Outcome::stopped : request::Outcome::queue_full, of));
}

bool HttpMode::next(Arrival& out) {
    for (;;) {
        Waiting request;
        {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [this] { return ended_ || !queue_.empty(); });
            if (ended_)
                return false;
            request = std::move(queue_.front());
            queue_.pop_front();
            others_wait_ = !queue_.empty();
        }
        if (request.waiter->abandoned()) // no machine is needed
            continue;
        out = arrival_of(std::move(request));
        if (out.memory || out.fd)
            return true;
    }
}

// Without either kind of connection when there is none to be had; its client was told so.
Arrival HttpMode::arrival_of(Waiting request) const {
    Arrival out;
    out.listener = listener_;
    out.own = true;
    out.peer = address_of(request.client_ip);
    auto outcome = std::make_shared<std::atomic<request::Outcome>>(request::Outcome::ok);
    out.tell = [outcome](request::Outcome how) { outcome->store(how, std::memory_order_release); };
    auto lease = std::make_unique<MachineLease>(std::move(outcome), limits_);
    if (request.opening.size() <= Driver::kMostReceived) {
        out.received = std::move(request.opening);
        out.memory = std::make_unique<RequestPeer>(std::move(request.waiter), std::move(lease), request.more_follows,
                                                   others_wait_);
        return out;
    }
    auto [ours, theirs] = socket_pair();
    out.fd = std::move(ours);
    if (theirs)
        request.waiter->connected(std::move(theirs), std::move(lease));
    else
        request.waiter->failed(no_socket());
    return out;
}

void HttpMode::give_up_late_ones() {
    std::deque<Waiting> late; // told without the lock
    {
        const std::lock_guard lock(mutex_);
        const std::uint64_t now = host_mono_ns();
        std::erase_if(queue_, [](const Waiting& request) { return request.waiter->abandoned(); });
        while (!queue_.empty() && queue_.front().since_ns + kPatienceNs < now) {
            late.push_back(std::move(queue_.front()));
            queue_.pop_front();
        }
        others_wait_ = !queue_.empty();
    }
    for (const Waiting& request : late)
        request.waiter->failed(problem_for(request::Outcome::queue_timeout));
}

} // namespace kvmserver
