// The pool's thread, and messages from workers and their machines.
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "src/daemon/worker_pool.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/stream_pair.hpp"

namespace kvmserver::daemon {

using namespace tinykvm;
using request::Actions;
using request::Time;

namespace {

constexpr Time kMillisecond = 1'000'000, kSecond = 1'000 * kMillisecond;
constexpr Time kShortestTick = 20 * kMillisecond, kLongestTick = kSecond;
constexpr Time kLookEvery = 10 * kSecond;       // for functions that nobody refers to
constexpr Time kEndPatience = 5 * kSecond;      // for workers to end when the daemon ends
constexpr Time kSuspendPatience = 25 * kSecond; // longer, for those that save the state of a machine
constexpr Time kReportEvery = 10 * kSecond;     // lines about memory
constexpr unsigned kMaxSaid = 16;               // messages of a machine before its worker's end
constexpr Time kLastTick = 100 * kMillisecond;

} // namespace

void WorkerPool::watch(std::uint64_t id, int fd, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = id;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) < 0)
        throw_errno("epoll_ctl");
}

void WorkerPool::unwatch(int fd) { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

void WorkerPool::wake() {
    const std::uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof(one));
}

void WorkerPool::not_later_than(Time when) {
    if (when >= next_tick_)
        return;
    next_tick_ = when;
    if (!watching_)
        wake();
}

// Ids of machines and workers never coincide, so the number alone tells whether a machine sent something or a worker
// ended.
void WorkerPool::watch_loop() {
    int timeout_ms = 0;
    for (;;) {
        epoll_event events[64];
        const int n = ::epoll_wait(epoll_.get(), events, 64, timeout_ms);
        if (n < 0 && errno != EINTR)
            throw_errno("epoll_wait");
        Afterwards after;
        bool stalled = false;
        {
            const std::lock_guard lock(mutex_);
            watching_ = true;
            for (int i = 0; i < n; ++i) {
                const std::uint64_t id = events[i].data.u64; // a copy: the structure is packed
                if (id == kStall) {
                    stalled = true;
                    // Its control group is gone, which it would tell for ever.
                    if ((events[i].events & EPOLLERR) != 0)
                        unwatch(memory_.stall_fd());
                } else if (id == 0) {
                    std::uint64_t woken;
                    (void)!::read(wake_.get(), &woken, sizeof(woken));
                } else if (const auto machine = machines_.find(request::MachineId{id}); machine != machines_.end()) {
                    receive(Machine(machine->second), 1, after);
                } else if (const auto worker = workers_.find(request::WorkerId{id}); worker != workers_.end()) {
                    const Worker one = worker->second;
                    if (one->suspending && one->process->running())
                        on_control(one, after);
                    else
                        on_exit(one, after);
                }
            }
            const Time now = now_ns();
            if (ending_)
                end_stragglers(now);
            const bool ticks = now >= next_tick_;
            if (ticks)
                tick(now, after);
            if (ticks || stalled)
                relieve(now, stalled, after);
            timeout_ms = static_cast<int>((next_tick_ - std::min(next_tick_, now_ns())) / kMillisecond) + 1;
            watching_ = false;
        }
        do_afterwards(std::move(after));
        const std::lock_guard lock(mutex_);
        if (ending_ && scheduler_.workers() == 0)
            return;
    }
}

void WorkerPool::tick(Time now, Afterwards& after) {
    next_tick_ = now + (ending_ ? kLastTick : kLongestTick);
    Time next = 0;
    schedule([&](Time then, Actions& out) { next = scheduler_.tick(then, out); }, after);
    next_tick_ = std::min(next_tick_, std::max(next, now + kShortestTick));
    check_states(now);
    if (now >= next_look_)
        forget_unused(now, after);
}

// A process that saves a state, or has saved one, is not trusted with the disk.
void WorkerPool::check_states(Time now) {
    const bool all = now >= next_check_; // there may be many ticks in a second
    for (const auto& [id, worker] : workers_) {
        if (!all && !worker->suspending)
            continue;
        worker->process->limit_files(2 * worker->state_bytes); // two: see SavedState::begin()
        if (worker->suspending)
            next_tick_ = std::min(next_tick_, now + kLastTick);
    }
    if (!all)
        return;
    next_check_ = now + kLongestTick;
    manager_.check_lingering();
}

// Ends what idles when memory is short, before the kernel kills any: first processes without a machine.
void WorkerPool::relieve(Time now, bool stalled, Afterwards& after) {
    if (ending_ || memory_.reserve() == 0 || (scheduler_.workers() == 0 && !manager_.has_lingering()))
        return;
    const auto available = memory_.available();
    const bool low = available && *available < memory_.reserve();
    if (low)
        next_tick_ = std::min(next_tick_, now + kLastTick);
    const unsigned lingered = low || stalled ? manager_.end_lingering() : 0;
    given_back_ += lingered;
    if ((low || stalled) && lingered == 0)
        schedule([&](Time then, Actions& out) { given_back_ += scheduler_.give_back(then, out); }, after);
    if (given_back_ == reported_ || now < next_report_)
        return;
    next_report_ = now + kReportEvery;
    after.report = fmt::format(
        "kvmserver: memory is short ({}): idle machines ended, longest idle first: {}",
        low ? fmt::format("{} MiB are available, --memory-reserve is {} MiB", *available >> 20, memory_.reserve() >> 20)
            : "programs wait for it",
        given_back_ - reported_);
    reported_ = given_back_;
}

void WorkerPool::end_stragglers(Time now) {
    if (end_ == 0)
        end_ = now + kEndPatience;
    next_tick_ = std::min(next_tick_, now + kLastTick);
    for (const auto& [id, worker] : workers_)
        if (now > (worker->suspending ? end_ + kSuspendPatience : end_))
            worker->process->kill();
}

// For example a deleted version, which only the pool refers to.
void WorkerPool::forget_unused(Time now, Afterwards& after) {
    next_look_ = now + kLookEvery;
    std::vector<request::FunctionId> unused;
    for (const auto& [id, version] : functions_)
        if (version.use_count() == 1)
            unused.push_back(id);
    for (const request::FunctionId id : unused) {
        schedule([&](Time then, Actions& out) { scheduler_.retire(id, then, out); }, after);
        if (scheduler_.forget(id))
            functions_.erase(id);
    }
}

void WorkerPool::started(request::WorkerId id, ProcessManager::Started process, Afterwards& after) {
    auto worker = std::make_shared<RunningWorker>();
    worker->id = id;
    worker->version = starting_.at(id);
    worker->process = std::move(process.process);
    worker->snapshot = std::move(process.snapshot);
    worker->state = std::move(process.state);
    worker->state_bytes = process.state_bytes;
    worker->lingered = process.lingered;
    worker->went_on = process.unsaved;
    const FunctionVersion::Facts& facts = worker->version->facts();
    try {
        worker->output =
            outputs_.add(facts.function, facts.version, worker->process->output_fd(), worker->process->errors_fd());
        watch(static_cast<std::uint64_t>(id), worker->process->pid_fd());
    } catch (const std::exception& error) {
        finish_output(*worker, after);
        if (worker->went_on)
            keep_unsaved(*worker);
        after.gone.push_back(std::move(worker));
        return start_failed(id, {error.what()}, after);
    }
    starting_.erase(id);
    workers_.emplace(id, std::move(worker));
    schedule([&](Time now, Actions& out) { scheduler_.worker_started(id, now, out); }, after);
    not_later_than(now_ns() + kLongestTick);
}

void WorkerPool::start_failed(request::WorkerId id, const ProcessManager::NotStarted& failed, Afterwards& after) {
    const auto found = starting_.find(id);
    FunctionVersion& version = *found->second;
    version.last_failure_ = std::make_unique<const std::string>(failed.why);
    version.chunks_away_ = failed.chunks_away;
    passed_trials_.forget(next_snapshot(version));
    note(version, fmt::format("cannot be restored: {}", failed.why), after);
    schedule([&](Time now, Actions& out) { scheduler_.start_failed(id, now, out); }, after);
    starting_.erase(found);
    not_later_than(now_ns()); // when to retry
}

// Handles at most `max_messages` messages, so that a machine that sends without end does not keep others waiting.
void WorkerPool::receive(const Machine& machine, unsigned max_messages, Afterwards& after) {
    using protocol::Kind;
    for (unsigned n = 0; n < max_messages && machine->worker; ++n) {
        bool again = false;
        const auto received = protocol::receive(machine->channel.get(), protocol::Wait::no, &again, room_);
        if (again)
            return;
        if (!received)
            return on_gone(machine, after);
        const protocol::Message& message = received->message;
        Request* const request = machine->request.get();
        bool sound = false;
        if (message.kind == Kind::ready && !machine->clean) {
            sound = on_ready(machine, message, after);
        } else if (message.kind == Kind::ended && request && request->outcome == request::Outcome::ok &&
                   request::from_machine(message.outcome)) {
            request->outcome = message.outcome;
            sound = true;
        } else if (message.kind == Kind::reply && request && request->waiter) {
            answer(*request,
                   Replied{std::string(received->bytes), message.reset ? http::Closing::reset : http::Closing::clean,
                           http::Sender::caller},
                   after);
            sound = !message.ready || on_ready(machine, message, after);
        } else if (message.kind == Kind::connect && request && request->waiter) {
            connect(*machine, after);
            sound = true;
        } else if (message.kind == Kind::ending && machine->worker->version->facts().kept) {
            scheduler_.worker_ending(machine->worker->id, now_ns());
            sound = true;
        }
        if (!sound)
            return break_off(machine, after);
    }
}

// The rest of the machine's request goes over a socket.
void WorkerPool::connect(WorkerMachine& machine, Afterwards& after) {
    Request& request = *machine.request;
    Sending sending{request.machine.lock(), {}, {}, {}};
    sending.message.kind = protocol::Kind::connected;
    auto [ours, theirs] = stream_pair();
    if (ours) {
        sending.socket = std::move(ours);
        answer(request, Connected{std::move(theirs), true}, after);
    } else {
        answer(request, no_socket(*request.version), after);
    }
    after.sendings.push_back(std::move(sending));
}

// Kills a worker that violates the protocol: it may have been taken over.
void WorkerPool::break_off(const Machine& machine, Afterwards& after) {
    RunningWorker& worker = *machine->worker;
    if (!worker.broken) {
        worker.broken = true;
        note(*worker.version, "its process violated the worker protocol and is killed", after);
        worker.process->kill();
    }
    on_gone(machine, after);
}

// Returns false if the machine cannot be ready now (a protocol violation).
bool WorkerPool::on_ready(const Machine& machine, const protocol::Message& message, Afterwards& after) {
    RunningWorker& worker = *machine->worker;
    const FunctionVersion::Facts& facts = worker.version->facts();
    if (!worker.ready) {
        worker.ready = true;
        manager_.set_ahead(message.hot_bytes);
        metrics_.count(facts.function, facts.version, [&](VersionMetrics& m) { m.restore.add(message.restore_us); });
        const Time now = now_ns();
        for (const auto& [id, request] : requests_)
            if (request->version == worker.version && scheduler_.waits(id)) {
                request->restore_us = message.restore_us;
                request->restored_ns = now;
            }
    }
    if (machine->request) {
        Request& request = *machine->request;
        request.machine_us = message.exec_us;
        request.reset_us = message.reset_us;
        request.cpu_us = message.cpu_us;
        request.dirty_pages = message.dirty_pages;
        request.clean_ns = now_ns();
        metrics_.count(facts.function, facts.version, [&](VersionMetrics& m) {
            m.reset.add(message.reset_us);
            m.cpu_us += message.cpu_us;
            m.dirty_pages += message.dirty_pages;
        });
    }
    machine->clean = true;
    bool believed = false;
    schedule([&](Time now, Actions& out) { believed = scheduler_.machine_ready(machine->id, now, out); }, after);
    if (worker.stopping && !machine->request)
        ::shutdown(machine->channel.get(), SHUT_WR);
    if (facts.idle_ns < kLongestTick)
        not_later_than(now_ns() + std::max(facts.idle_ns, kShortestTick));
    return believed;
}

// The machine's channel has ended: the machine was closed, or its worker ended.
void WorkerPool::on_gone(const Machine& machine, Afterwards& after) {
    if (!machine->worker)
        return;
    const Machine keep = machine;
    RunningWorker& worker = *keep->worker;
    unwatch(keep->channel.get());
    std::erase(worker.machines, keep);
    machines_.erase(keep->id);
    keep->worker = nullptr;
    schedule([&](Time now, Actions& out) { scheduler_.machine_gone(keep->id, now, out); }, after);
    ::shutdown(keep->channel.get(), SHUT_RDWR); // another thread may hold a reference for a moment
    mark_output(worker);
}

void WorkerPool::on_exit(const Worker& worker, Afterwards& after) {
    for (const Machine& machine : std::vector<Machine>(worker->machines))
        receive(machine, kMaxSaid, after);
    FunctionVersion& version = *worker->version;
    finish_output(*worker, after);
    const std::string how = worker->process->reap();
    // It may have been killed a moment before it was to go on, for lack of memory, for example: its state is saved.
    const bool useless = worker->lingered && !worker->ready && !worker->broken;
    if (useless)
        scheduler_.worker_useless(worker->id);
    const bool as_wanted = useless || how == "exited with status 0";
    worker->suspended = worker->suspending && as_wanted;
    worker->forgotten = version.retired_;
    if (!ending_ && !useless && !(worker->stopping && as_wanted)) {
        version.chunks_away_ = false;
        version.last_failure_ =
            std::make_unique<const std::string>(worker->last_words.empty() ? "it " + how : worker->last_words);
        note(version, fmt::format("its process {}", how), after);
        if (!worker->ready) {
            passed_trials_.forget(worker->snapshot->digest());
            note(version, fmt::format("cannot be restored: {}", *version.last_failure_), after);
        }
    }
    remove(worker, as_wanted, after);
}

// It says that it has saved its machine's state, or could not, or is ending.
void WorkerPool::on_control(const Worker& worker, Afterwards& after) {
    bool again = false;
    const auto received = protocol::receive(worker->process->control_fd(), protocol::Wait::no, &again);
    if (again)
        return;
    if (!received)
        return unwatch(worker->process->control_fd());
    for (const Machine& machine : std::vector<Machine>(worker->machines))
        receive(machine, kMaxSaid, after); // that it has closed the channel
    worker->suspended = received->message.kind == protocol::Kind::saved && !worker->checkpoint;
    if ((received->message.kind != protocol::Kind::unsaved && !worker->suspended) || !worker->machines.empty()) {
        worker->suspended = false;
        worker->broken = true;
        note(*worker->version, "its process violated the worker protocol and is killed", after);
        return worker->process->kill();
    }
    if (worker->checkpoint && ending_) { // it need not go on
        worker->checkpoint = false;
        if (!worker->process->suspend(worker->suspend_to.get()))
            worker->process->kill();
        return;
    }
    finish_output(*worker, after);
    worker->forgotten = worker->version->retired_;
    worker->keeps = !worker->suspended && !worker->forgotten && !ending_;
    if (worker->keeps && !worker->checkpoint)
        note(*worker->version,
             fmt::format("the state of its machine was not saved, so its process keeps it: {}", worker->last_words),
             after);
    remove(worker, true, after);
}

void WorkerPool::keep_unsaved(RunningWorker& worker) {
    worker.suspending = false;
    if (worker.checkpoint) {
        worker.state->keep_begun(std::move(worker.suspend_to));
    } else {
        worker.suspend_to.reset();
        try {
            worker.state->drop();    // what was written of it
        } catch (const HostError&) { // the next try does that, too
        }
    }
    manager_.add_unsaved({worker.version, std::move(worker.snapshot), std::move(worker.process),
                          std::move(worker.state), worker.state_bytes});
}

void WorkerPool::remove(const Worker& worker, bool as_wanted, Afterwards& after) {
    unwatch(worker->process->pid_fd());
    if (worker->suspending)
        unwatch(worker->process->control_fd());
    for (const Machine& machine : worker->machines) {
        unwatch(machine->channel.get());
        machines_.erase(machine->id);
        machine->worker = nullptr;
    }
    workers_.erase(worker->id);
    if (worker->suspended && !lingers(*worker)) // to end takes it a while, since it has much memory
        manager_.discard(std::move(worker->process));
    if (worker->keeps) // in the same hold of the mutex: its machine is always found in one of both places
        keep_unsaved(*worker);
    schedule([&](Time now, Actions& out) { scheduler_.worker_exited(worker->id, as_wanted, now, out); }, after);
    after.gone.push_back(worker);
    not_later_than(now_ns()); // when to retry
}

// Attributes output to a request while only one request is running.
void WorkerPool::mark_output(RunningWorker& worker) {
    const Request* only = nullptr;
    std::size_t busy = 0;
    for (const Machine& machine : worker.machines)
        if (machine->request && ++busy == 1)
            only = machine->request.get();
    const std::string_view id = busy == 1 ? std::string_view(only->request_id) : std::string_view();
    if (!worker.output || busy == 0 || id == worker.only_request) // idle machines print nothing
        return;
    worker.only_request = id;
    worker.output->mark(worker.only_request);
}

void WorkerPool::finish_output(RunningWorker& worker, Afterwards& after) {
    if (!worker.output)
        return;
    if (std::string words = worker.output->finish(after.lines); !words.empty())
        worker.last_words = std::move(words);
    worker.output.reset();
}

void WorkerPool::note(const FunctionVersion& version, std::string text, Afterwards& after) {
    LogLine line;
    line.function = version.facts().function;
    line.version = version.facts().version;
    line.stream = "daemon";
    line.text = std::move(text);
    after.lines.push_back(std::move(line));
}

} // namespace kvmserver::daemon
