// The supervisor's thread: what processes and their machines say.
#include <fmt/format.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "src/daemon/supervisor.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::daemon {

using namespace tinykvm;

namespace {

constexpr std::uint64_t kLastPatienceNs = 5'000'000'000; // for processes to end when the daemon does

} // namespace

void Supervisor::watch(std::uint64_t id, int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = id;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) < 0)
        throw_errno("epoll_ctl");
}

void Supervisor::wake() {
    const std::uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof(one));
}

void Supervisor::watch_loop() {
    int patience_ms = -1;
    std::uint64_t end_ns = 0;
    for (;;) {
        epoll_event events[64];
        const int n = ::epoll_wait(epoll_.get(), events, 64, patience_ms);
        if (n < 0 && errno != EINTR)
            throw_errno("epoll_wait");
        Todo todo;
        {
            const std::lock_guard lock(mutex_);
            for (int i = 0; i < n; ++i) {
                const std::uint64_t id = events[i].data.u64; // a copy: the structure is packed
                if (id == 0) {
                    std::uint64_t woken;
                    (void)!::read(wake_.get(), &woken, sizeof(woken));
                    continue;
                }
                const auto found = watched_.find(id);
                if (found == watched_.end())
                    continue;
                const Watched watched = found->second;
                if (const Slot slot = watched.slot.lock(); slot && watched.kind == Watched::Kind::channel)
                    drain(slot, todo);
                if (const Process process = watched.process.lock()) {
                    if (watched.kind == Watched::Kind::exit)
                        on_exit(process, todo);
                }
            }
            patience_ms = tick(todo);
            if (ending_) {
                if (end_ns == 0)
                    end_ns = now_ns() + kLastPatienceNs;
                if (now_ns() > end_ns)
                    for (const Process& process : processes_)
                        process->process->kill();
                patience_ms = 100;
                for (const Process& process : std::vector<Process>(processes_))
                    if (!process->stopping)
                        stop_process(process);
            }
        }
        carry_out(std::move(todo));
        const std::lock_guard lock(mutex_);
        if (ending_ && processes_.empty())
            return;
    }
}

void Supervisor::drain(const Slot& slot, Todo& todo) {
    for (bool again = false; !again && slot->channel;) {
        const auto received = link::receive(slot->channel.get(), link::Wait::no, &again);
        if (again)
            return;
        if (!received)
            return on_slot_gone(slot, todo);
        const link::Message& message = received->message;
        using State = RequestMachineSlot::State;
        if (message.kind == link::Kind::ended && slot->job && slot->job->outcome == request::Outcome::ok &&
            request::from_machine(message.outcome))
            slot->job->outcome = message.outcome;
        else if (message.kind == link::Kind::ready && slot->state != State::idle)
            on_ready(slot, message, todo);
        else
            return break_off(slot, todo);
    }
}

// It says what no machine says, and might go on without end: whoever has taken it over gets nobody's attention.
void Supervisor::break_off(const Slot& slot, Todo& todo) {
    if (const Process process = slot->process.lock(); process && !process->broken) {
        process->broken = true;
        note(*process->target, "its process says what it should not, and is killed", todo);
        process->process->kill();
    }
    on_slot_gone(slot, todo);
}

void Supervisor::on_ready(const Slot& slot, const link::Message& message, Todo& todo) {
    using State = RequestMachineSlot::State;
    const Process process = slot->process.lock();
    if (!process)
        return;
    Target& target = *process->target;
    if (!process->ready) {
        process->ready = true;
        process->ready_ns = now_ns();
        hot_bytes_ = std::min(message.hot_bytes, kMostAhead);
        metrics_.count(target.facts().function, target.facts().version,
                       [&](VersionMetrics& m) { m.restore.add(message.restore_us); });
        for (const Waiting& waiting : target.queue_)
            waiting.job->restore_us = message.restore_us;
    }
    slot->last_used_ns = now_ns();
    if (const auto job = std::move(slot->job)) {
        slot->job.reset();
        mark_output(*process);
        job->slot.reset();
        job->machine_us = message.exec_us;
        job->reset_us = message.reset_us;
        job->cpu_us = message.cpu_us;
        job->dirty_pages = message.dirty_pages;
        metrics_.count(target.facts().function, target.facts().version, [&](VersionMetrics& m) {
            m.reset.add(message.reset_us);
            m.cpu_us += message.cpu_us;
            m.dirty_pages += message.dirty_pages;
        });
        finish(job, todo);
        target.last_used_ns_ = slot->last_used_ns;
    }
    if (slot->state == State::closing)
        return;
    slot->state = State::idle;
    // Whoever waits longer for a machine of another function goes first, when machines are scarce.
    drop_abandoned(target);
    bool yield = false;
    if (starved_.size() > machines_that_go())
        for (const auto& starved : starved_)
            if (const auto other = starved.lock(); other && !other->queue_.empty())
                yield |= target.queue_.empty() || other->queue_.front().since_ns < target.queue_.front().since_ns;
    if (yield) {
        close_slot(slot);
        return want_capacity(process->target, todo); // in its turn
    }
    if (dispatch_next(slot, todo))
        return want_capacity(process->target, todo);
    maybe_end(target);
    keep_minimum(process->target, todo);
}

// Its channel has ended: its machine is gone, by our wish or with the process.
void Supervisor::on_slot_gone(const Slot& slot, Todo& todo) {
    if (!slot->channel)
        return;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, slot->channel.get(), nullptr);
    slot->channel.reset();
    watched_.erase(slot->id);
    --machines_;
    if (const auto job = std::move(slot->job)) {
        if (job->outcome == request::Outcome::ok)
            job->outcome = request::Outcome::worker_died;
        job->slot.reset();
        finish(job, todo);
    }
    slot->job.reset();
    if (const Process process = slot->process.lock()) {
        process->slots.remove(slot);
        mark_output(*process);
        if (process->slots.empty() && slot->state == RequestMachineSlot::State::closing)
            stop_process(process); // else it is dying by itself
    }
    serve_starved(todo);
}

void Supervisor::on_exit(const Process& process, Todo& todo) {
    Target& target = *process->target;
    finish_output(*process, todo);
    const std::string how = process->process->reap();
    const bool wanted = process->stopping;
    for (const Slot& slot : std::list<Slot>(process->slots))
        on_slot_gone(slot, todo);
    forget(process, todo);
    // One that lived for a while is replaced at once, and counts for nothing in what comes later.
    constexpr std::uint64_t kAtOnceNs = 1'000'000'000;
    if (process->ready && now_ns() - process->ready_ns > kAtOnceNs)
        target.failures_ = 0;
    if (ending_ || (wanted && how == "exited with status 0"))
        return serve_starved(todo);

    const std::string why = process->last_words.empty() ? "it " + how : process->last_words;
    note(target, fmt::format("its process {}", how), todo);
    if (!process->ready)
        return start_failed(target, why, todo);
    count_failure(target, why);
    if (now_ns() < target.retry_at_ns_)
        reject_all(target, failing_problem(target), todo);
    else if (!target.queue_.empty())
        want_capacity(process->target, todo);
    keep_minimum(process->target, todo);
    serve_starved(todo);
}

// It is gone, or is made to go.
void Supervisor::forget(const Process& process, Todo& todo) {
    finish_output(*process, todo);
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, process->process->pid_fd(), nullptr);
    std::erase_if(watched_, [&](const auto& watched) { return watched.second.process.lock() == process; });
    std::erase(processes_, process);
    if (process->target->process_ == process)
        process->target->process_.reset();
    todo.gone.push_back(process);
}

// Which request prints is known while there is only one.
void Supervisor::mark_output(RunningProcess& process) {
    const Job* only = nullptr;
    std::size_t busy = 0;
    for (const Slot& slot : process.slots)
        if (slot->job && ++busy == 1)
            only = slot->job.get();
    const std::string_view id = busy == 1 ? std::string_view(only->request_id) : std::string_view();
    if (!process.output || id == process.only_request)
        return;
    process.only_request = id;
    process.output->mark(process.only_request);
}

void Supervisor::finish_output(RunningProcess& process, Todo& todo) {
    if (!process.output)
        return;
    if (std::string words = process.output->finish(todo.lines); !words.empty())
        process.last_words = std::move(words);
    process.output.reset();
}

void Supervisor::note(const Target& target, std::string text, Todo& todo) {
    LogLine line;
    line.function = target.facts().function;
    line.version = target.facts().version;
    line.stream = "daemon";
    line.text = std::move(text);
    todo.lines.push_back(std::move(line));
}

} // namespace kvmserver::daemon
