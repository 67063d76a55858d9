#include "src/runner/http_mode.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
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
constexpr std::chrono::seconds kDrainPatience{30};

constexpr std::uint64_t kStop = ~std::uint64_t{0}; // what epoll tells: this, or a place in connected_ and its turn
constexpr unsigned kTurnShift = 32;

http::Options front_options(const Options& options) {
    http::Options out;
    out.threads = 1 + options.threads / 8; // a front thread serves some 10,000 requests a second
    out.progress_timeout = {};             // --max-request-time is the worker's to enforce
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

// Tells the front why a program's connection ended before its reply did.
class MachineLease final : public http::Lease {
public:
    MachineLease(std::shared_ptr<std::atomic<Fate>> fate, double request_seconds)
        : fate_(std::move(fate)), request_seconds_(request_seconds) {}

    std::optional<http::Problem> failure() const override {
        switch (fate_->load(std::memory_order_acquire)) {
        case Fate::running: return std::nullopt;
        case Fate::program_failed:
            return http::Problem{502, "program-failed", "the program ended during the request", "its crash report is in the server's log", {}};
        case Fate::timed_out:
            return http::Problem{504, "request-timeout", fmt::format("the request made no progress for {:.4g} s", request_seconds_),
                                 "--max-request-time sets the limit", {}};
        case Fate::out_of_memory:
            return http::Problem{507, "out-of-memory", "the request took more memory than it may", "--max-request-memory sets the limit", {}};
        case Fate::no_machine: return http::Problem{503, "queue-timeout", "No machine became free in time.", "more machines: --threads", 1};
        case Fate::stopped: return http::Problem{503, "stopping", "the server is stopping", "try again", 1};
        }
        return std::nullopt;
    }

private:
    std::shared_ptr<std::atomic<Fate>> fate_;
    double request_seconds_;
};

} // namespace

HttpMode::HttpMode(const Setup& setup, const Options& options)
    : listeners_(*setup.listeners), request_seconds_(setup.env.limits.request_seconds), most_ahead_(2 * std::size_t{std::max(1u, options.threads)}),
      patience_ns_(std::chrono::nanoseconds(front_options(options).connect_timeout).count()),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)), front_(front_options(options), *this, nullptr) {
    if (!epoll_)
        throw_errno("epoll_create1");
    epoll_event stop{};
    stop.events = EPOLLIN;
    stop.data.u64 = kStop;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, hard_stop_.fd(), &stop) < 0)
        throw_errno("epoll_ctl");
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
    front_.wait_drained(kDrainPatience);
    hard_stop_.request();
}

void HttpMode::connect(const http::RequestInfo& request, std::shared_ptr<http::Waiter> waiter) {
    {
        const std::lock_guard lock(mutex_);
        if (queue_.size() < kMostWaiting) {
            queue_.push_back({std::move(waiter), std::string(request.client_ip)});
            waiter = nullptr;
        }
    }
    if (waiter)
        waiter->failed({503, "queue-full", fmt::format("{} requests wait for a machine already", kMostWaiting), "more machines: --threads", 1});
    else
        connect_waiting();
}

// Called after each change that may let one go on.
void HttpMode::connect_waiting() {
    for (;;) {
        Waiting next;
        {
            const std::lock_guard lock(mutex_);
            if (ahead_ == most_ahead_ || queue_.empty())
                return;
            ++ahead_;
            next = std::move(queue_.front());
            queue_.pop_front();
        }
        if (!next.waiter->abandoned())
            if (auto arrival = join(*next.waiter, next.client_ip); arrival && watch_for_head(std::move(*arrival)))
                continue;
        const std::lock_guard lock(mutex_);
        --ahead_;
    }
}

// A connection between the front and a machine; the front has its end then. Nothing: the front was told why not.
std::optional<Arrival> HttpMode::join(http::Waiter& waiter, const std::string& client_ip) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
        waiter.failed({503, "no-socket", fmt::format("the server has no socket left: {}", std::strerror(errno)), "raise its open files", 1});
        return std::nullopt;
    }
    Arrival out;
    out.fd = UniqueFd(pair[0]);
    out.listener = listener_;
    out.own = true;
    out.peer = address_of(client_ip);
    auto fate = std::make_shared<std::atomic<Fate>>(Fate::running);
    out.tell = [fate](Fate how) { fate->store(how, std::memory_order_release); };
    waiter.connected(UniqueFd(pair[1]), std::make_unique<MachineLease>(std::move(fate), request_seconds_));
    return out;
}

// A worker takes it once there is something to read, or nothing to come. False: the kernel has no memory for that, and the
// connection is closed.
bool HttpMode::watch_for_head(Arrival arrival) {
    const std::lock_guard lock(mutex_);
    std::size_t place = 0;
    while (place < connected_.size() && connected_[place].arrival.fd)
        ++place;
    if (place == connected_.size())
        connected_.emplace_back();
    Connected& free = connected_[place];
    ++free.turn;
    epoll_event event{};
    event.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT;
    event.data.u64 = std::uint64_t{free.turn} << kTurnShift | place;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, arrival.fd.get(), &event) < 0)
        return false;
    free.arrival = std::move(arrival);
    free.since_ns = host_mono_ns();
    return true;
}

// False: it is not to be served, and is closed: given up meanwhile, ended without a request, or its client has gone.
bool HttpMode::take(std::uint64_t token, std::uint32_t events, Arrival& out) {
    Arrival taken;
    {
        const std::lock_guard lock(mutex_);
        Connected& connected = connected_[token & ((std::uint64_t{1} << kTurnShift) - 1)];
        if (!connected.arrival.fd || connected.turn != token >> kTurnShift)
            return false;
        taken = std::move(connected.arrival);
        --ahead_;
    }
    // It tells no more (EPOLLONESHOT), and leaves epoll when it is closed.
    connect_waiting(); // the next one's head arrives while this one is served
    char byte;
    if ((events & EPOLLHUP) != 0 || ::recv(taken.fd.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0)
        return false;
    out = std::move(taken);
    return true;
}

// The front's patience ends with the connection: for a machine these wait here.
void HttpMode::give_up_late_ones() {
    std::vector<Arrival> late; // closed after their fate is known
    {
        const std::lock_guard lock(mutex_);
        const std::uint64_t now = host_mono_ns();
        for (Connected& connected : connected_)
            if (connected.arrival.fd && now > connected.since_ns + patience_ns_) {
                ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connected.arrival.fd.get(), nullptr);
                late.push_back(std::move(connected.arrival));
                --ahead_;
            }
    }
    for (const Arrival& arrival : late)
        arrival.tell(Fate::no_machine);
    late.clear();
    connect_waiting();
}

bool HttpMode::next(Arrival& out) {
    while (!hard_stop_.requested()) {
        epoll_event event;
        const int n = ::epoll_wait(epoll_.get(), &event, 1, -1);
        if (n < 0 && errno != EINTR)
            throw_errno("epoll_wait");
        if (n > 0 && event.data.u64 != kStop && take(event.data.u64, event.events, out))
            return true;
    }
    return false;
}

} // namespace kvmserver
