#include "src/runner/kept_machine.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "src/capture/synthetic_request.hpp"
#include "src/event_loop/overrun.hpp"
#include "src/protocol/worker_messages.hpp"
#include "src/setup/machine_env.hpp"
#include "src/setup/report.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/machine/clock.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

MachineEnv env_of(const Setup& setup) {
    MachineEnv env = setup.env;
    env.limits.request_memory = env.limits.memory;
    env.options.time = GuestTime::continues; // the program continues; it is not one invocation
    return env;
}

std::uint64_t nanoseconds(double seconds) { return static_cast<std::uint64_t>(seconds * 1e9); }

} // namespace

KeptMachine::KeptMachine(const Setup& setup, const std::shared_ptr<const MachineImage>& image, std::string name,
                         bool suspends, ChannelConnections::First first, ChannelConnections::Ports ports)
    : setup_(setup), name_(std::move(name)), suspends_(suspends), listener_(image->listeners.front().id), first_(first),
      ports_(std::move(ports)), epoll_(::epoll_create1(EPOLL_CLOEXEC)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      loop_(own_listeners(setup), note_line, stop_), env_(env_of(setup)) {
    epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
    if (!epoll_ || !wake_ || ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) < 0)
        throw_errno("epoll");
    machine_ = Machine::clone(env_, image, loop_, ResetStrategy::working_set);
}

KeptMachine::~KeptMachine() = default;

void KeptMachine::add(UniqueFd channel) {
    const std::lock_guard lock(mutex_);
    new_.push_back(std::move(channel));
    ::eventfd_write(wake_.get(), 1);
}

void KeptMachine::end() {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    ::eventfd_write(wake_.get(), 1);
}

void KeptMachine::stop() { stop_.request(); }

bool KeptMachine::serve() {
    failing_ = false;
    cpu_ns_ = thread_cpu_ns();
    EventLoop::Until until;
    until.accepting = true;
    until.arrivals = this;
    const LoopEnd end = loop_.run(*machine_, until);
    fail(end);
    for (const Channel& channel : channels_)
        ::shutdown(channel.socket.get(), SHUT_RDWR); // tells the daemon that it is gone
    return end == LoopEnd::requested;
}

std::unique_ptr<Machine> KeptMachine::take_quiet(bool& ended) {
    constexpr double kSeconds = 5;
    stop_.clear();
    ended = false;
    const LoopEnd end = run_until_quiet(*machine_, loop_, kSeconds);
    if (end == LoopEnd::quiescent)
        return std::move(machine_);
    ended = end == LoopEnd::stopped;
    if (ended)
        fail(end);
    else
        note_line(fmt::format("{}: it does not wait for connections, so its state cannot be saved", name_));
    const std::lock_guard lock(mutex_);
    ending_ = false;
    return nullptr;
}

// Reports the outcome of the requests in flight before their connections close.
void KeptMachine::fail(LoopEnd how) {
    const char* const lost = suspends_ ? "what it kept since its state was last saved is lost"
                                       : "what it kept is lost, and it starts again from its snapshot";
    request::Outcome outcome = request::Outcome::stopped;
    if (how == LoopEnd::stopped) {
        const Stop& stop = loop_.stop();
        outcome = request::Outcome::program_failed;
        if (stop.kind == StopKind::no_memory) {
            outcome = request::Outcome::out_of_memory;
            note_line(fmt::format("{}: it took more than --max-main-memory; {}", name_, lost));
        } else if (stop.kind == StopKind::exited) {
            note_line(fmt::format("{}: exited with status {}; {}", name_, stop.status, lost));
        } else {
            report_stop(name_, stop);
            note_line(fmt::format("{}: {}", name_, lost));
        }
    } else if (how == LoopEnd::timeout) {
        outcome = outcome_of(loop_.overrun());
        note_line(fmt::format("{}: a request {}; {}", name_, overrun_text(loop_.overrun(), setup_.env.limits), lost));
    }
    failing_ = true;
    protocol::Message ending;
    ending.kind = protocol::Kind::ending;
    for (const Channel& channel : channels_)
        protocol::send(channel.socket.get(), ending);
    for (const Channel& channel : channels_) { // a request that it never came to take ends as those that it took
        IncomingConnection untaken;
        if (channel.connections->take_next(untaken) == ChannelConnections::Got::request)
            untaken.report_outcome(outcome);
    }
    loop_.fail_connections(outcome);
}

bool KeptMachine::next(IncomingConnection& out) {
    for (;;) {
        epoll_event event{};
        if (::epoll_wait(epoll_.get(), &event, 1, 0) <= 0)
            return false;
        if (event.data.ptr == nullptr) {
            take_new();
            continue;
        }
        const auto channel =
            std::ranges::find_if(channels_, [&](const Channel& each) { return &each == event.data.ptr; });
        if (channel == channels_.end())
            continue;
        switch (channel->connections->take_next(out)) {
        case ChannelConnections::Got::nothing: continue;
        case ChannelConnections::Got::end: close(channel); continue;
        case ChannelConnections::Got::request: break;
        }
        // While it is busy, messages on it are for its connection only.
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, channel->socket.get(), nullptr);
        channel->began_ns = host_mono_ns();
        out.closed = [this, channel] { finished(channel); };
        out.limit_ns = nanoseconds(setup_.env.limits.request_seconds);
        out.total_ns = nanoseconds(setup_.env.limits.request_total_seconds);
        return true;
    }
}

void KeptMachine::take_new() {
    eventfd_t ignored;
    ::eventfd_read(wake_.get(), &ignored);
    std::vector<UniqueFd> added;
    bool ending;
    {
        const std::lock_guard lock(mutex_);
        added.swap(new_);
        ending = ending_;
    }
    for (UniqueFd& socket : added) {
        Channel& channel = channels_.emplace_back();
        channel.connections = std::make_unique<ChannelConnections>(socket.get(), listener_, std::exchange(first_, {}),
                                                                   StopSignal::instance(), ports_);
        channel.socket = std::move(socket);
        ready(std::prev(channels_.end()));
    }
    if (ending && channels_.empty())
        stop_.request();
}

void KeptMachine::ready(Place channel) {
    epoll_event event{.events = EPOLLIN, .data = {.ptr = &*channel}};
    if (!channel->connections->say_ready() ||
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, channel->socket.get(), &event) < 0)
        close(channel);
}

// The daemon no longer wants it.
void KeptMachine::close(Place channel) {
    channels_.erase(channel);
    if (channels_.empty())
        ::eventfd_write(wake_.get(), 1); // perhaps it was the last one
}

void KeptMachine::finished(Place channel) {
    if (failing_)
        return; // it is to take no other
    const std::uint64_t cpu_ns = thread_cpu_ns(), exits = machine_->exits();
    channel->connections->served({.exec_ns = host_mono_ns() - channel->began_ns, .exits = exits - exits_},
                                 cpu_ns - cpu_ns_);
    exits_ = exits;
    cpu_ns_ = cpu_ns;
    ready(channel);
}

} // namespace kvmserver
