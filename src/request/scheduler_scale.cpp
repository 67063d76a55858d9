// Machines: more under load, fewer when idle, never more than the total limit.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "src/request/scheduler_state.hpp"

namespace kvmserver::request {
namespace {

constexpr Time kSecond = 1'000'000'000;
constexpr Time kToGo = 15 * kSecond;     // for a machine to end, or for a worker that has none
constexpr Time kToStart = 120 * kSecond; // for a machine to become ready: slow on an emulated host
constexpr Time kFirstBackoff = kSecond / 5, kLongestBackoff = 30 * kSecond;
// A worker that was ready for longer is replaced at once, and its failures are forgotten.
constexpr Time kAtOnce = kSecond;
constexpr Time kHot = kSecond; // a machine that was used since is not given back: it would soon be started again

} // namespace

void Scheduler::activate(Function& function) {
    if (!function.active)
        active_.push_back(&function);
    function.active = true;
}

void Scheduler::make_idle(Machine& machine, Time now) {
    machine.state = Machine::State::idle;
    machine.last_used = now;
    machine.worker->idle.push_back(&machine);
}

void Scheduler::not_idle(Machine& machine) {
    if (machine.state == Machine::State::idle)
        std::erase(machine.worker->idle, &machine);
}

// Starts a worker or a machine when requests wait and no machine is free.
void Scheduler::want_capacity(Function& function, Time now, Actions& out) {
    if (function.queue.empty() || stopped_ || function.held)
        return;
    Worker* const worker = function.worker;
    if (!worker) {
        if (!function.starting && now >= function.retry_at && take_budget(function, now, out))
            start(function, out);
        return;
    }
    if (!worker->ready || worker->ending)
        return; // its machine may suffice: requests are shorter than a start
    if (worker->staying() < function.scale.max && function.queue.size() > worker->count(Machine::State::starting) &&
        (worker->shares() || take_budget(function, now, out)))
        add_machine(*worker, now, out);
}

// Takes one machine from the total budget. Returns false if the budget is used up. The function then waits until a
// machine is gone. Each waiting function evicts one idle machine, however many requests it has.
bool Scheduler::take_budget(Function& function, Time now, Actions& out) {
    if (room()) {
        ++machine_count_;
        return true;
    }
    if (!function.starved) {
        function.starved = true;
        starved_.push_back(function.id);
        evict_one(now, out);
    }
    return false;
}

// Closes the machine that has been idle for longest, whichever function it belongs to.
bool Scheduler::evict_one(Time now, Actions& out) {
    Machine* oldest = nullptr;
    for (const auto& [id, worker] : workers_) {
        const Function& function = *worker->function;
        if (worker->stopping || worker->idle.empty() || function.scale.kept ||
            (worker->staying() <= function.scale.min && !function.retired))
            continue;
        Machine* const first = worker->idle.front();
        if (!oldest || first->last_used < oldest->last_used)
            oldest = first;
    }
    if (oldest)
        close(*oldest, now, out);
    return oldest != nullptr;
}

unsigned Scheduler::give_back(Time now, Actions& out) {
    struct Candidate {
        Time last_used;
        Worker* worker;
        Machine* machine; // null: the whole worker
    };
    std::vector<Candidate> candidates;
    const auto consider = [&](Time last_used, Worker* worker, Machine* machine) {
        if (last_used + kHot <= now)
            candidates.push_back({last_used, worker, machine});
    };
    for (const auto& [id, worker] : workers_) {
        const Function& function = *worker->function;
        if (worker->stopping && worker->machines.empty())
            return 0; // it gives its memory back now
        if (worker->stopping || worker->ending || worker->idle.empty())
            continue;
        if (function.scale.kept) {
            if (function.scale.saved && function.in_flight == 0 && function.queue.empty())
                consider(function.last_used, worker.get(), nullptr);
            continue;
        }
        const std::size_t min = function.retired ? 0 : function.scale.min, staying = worker->staying();
        for (std::size_t i = 0; i < worker->idle.size() && staying > min + i; ++i)
            consider(worker->idle[i]->last_used, worker.get(), worker->idle[i]);
    }
    if (closing_ != 0 || candidates.empty())
        return 0;
    constexpr std::size_t kShare = 8; // an eighth at a time: what one gives back is not known
    const std::size_t count = (candidates.size() + kShare - 1) / kShare;
    std::ranges::sort(candidates, {}, &Candidate::last_used);
    for (const Candidate& each : std::span(candidates).first(count)) {
        if (each.machine)
            close(*each.machine, now, out);
        else
            stop_worker(*each.worker, now, out);
    }
    return static_cast<unsigned>(count);
}

void Scheduler::serve_starved(Time now, Actions& out) {
    while (!starved_.empty() && room() && !stopped_) {
        Function& function = *functions_.at(starved_.front());
        starved_.pop_front();
        function.starved = false;
        want_capacity(function, now, out);
    }
}

// Whether a request of another function has waited for longer, and fewer machines are closing than functions are
// waiting.
bool Scheduler::should_yield(const Function& function) const {
    if (starved_.size() <= closing_ || function.scale.kept)
        return false;
    return std::ranges::any_of(starved_, [&](FunctionId id) {
        const Function& other = *functions_.at(id);
        return !other.queue.empty() &&
               (function.queue.empty() || other.queue.front().since < function.queue.front().since);
    });
}

// The caller has taken the budget for the worker's first machine.
void Scheduler::start(Function& function, Actions& out) {
    auto worker = std::make_unique<Worker>();
    worker->id = WorkerId{next_id_++};
    worker->function = &function;
    function.starting = worker.get();
    ++function.workers;
    activate(function);
    out.push_back(StartWorker{function.id, worker->id});
    const WorkerId id = worker->id;
    workers_.try_emplace(id, std::move(worker));
}

void Scheduler::worker_started(WorkerId id, Time now, Actions& out) {
    Worker& worker = *workers_.at(id);
    Function& function = *worker.function;
    function.starting = nullptr;
    function.worker = &worker;
    function.last_used = now;
    ++function.starts;
    add_machine(worker, now, out);
    if (stopped_)
        stop_worker(worker, now, out);
    else
        maybe_end(function, now, out);
    if (function.held)
        stop_worker(worker, now, out);
}

void Scheduler::worker_ending(WorkerId id, Time now) {
    const auto found = workers_.find(id);
    if (found == workers_.end())
        return;
    Worker& worker = *found->second;
    worker.ending = true;
    for (Machine* machine : worker.machines)
        if (machine->state == Machine::State::idle || machine->state == Machine::State::starting)
            mark_closing(*machine, now);
}

void Scheduler::rest(FunctionId id, Time now, Actions& out) {
    Function& function = *functions_.at(id);
    if (!function.worker)
        return;
    stop_worker(*function.worker, now, out);
    want_capacity(function, now, out); // for requests that wait
}

void Scheduler::hold(FunctionId id, Time now, Actions& out) {
    Function& function = *functions_.at(id);
    function.held = true;
    if (function.worker)
        stop_worker(*function.worker, now, out);
}

void Scheduler::release(FunctionId id, Time now, Actions& out) {
    Function& function = *functions_.at(id);
    function.held = false;
    keep_minimum(function, now, out);
    want_capacity(function, now, out);
}

void Scheduler::wake(FunctionId id, Time now, Actions& out) {
    Function& function = *functions_.at(id);
    if (function.worker || function.starting || function.retired || function.held || stopped_ ||
        now < function.retry_at)
        return;
    function.last_used = now;
    if (room()) {
        ++machine_count_;
        start(function, out);
    }
}

// The worker never became ready: waiting requests are refused, and the next start is delayed.
void Scheduler::start_failed(WorkerId id, Time now, Actions& out) {
    Worker& worker = *workers_.at(id);
    Function& function = *worker.function;
    --machine_count_;
    remove(worker);
    count_failure(function, now);
    refuse_all(function, Outcome::not_restored, now, out);
    serve_starved(now, out);
}

void Scheduler::worker_useless(WorkerId id) {
    if (const auto found = workers_.find(id); found != workers_.end())
        found->second->stopping = true;
}

void Scheduler::worker_exited(WorkerId id, bool as_wanted, Time now, Actions& out) {
    const auto found = workers_.find(id);
    if (found == workers_.end())
        return;
    Worker& worker = *found->second;
    Function& function = *worker.function;
    while (!worker.machines.empty())
        remove(*worker.machines.back(), out);
    const bool was_ready = worker.ready, expected = worker.stopping && as_wanted;
    if (was_ready && now - worker.ready_at > kAtOnce)
        function.failures = 0;
    remove(worker);
    if (!stopped_ && !expected) {
        count_failure(function, now);
        if (!was_ready)
            refuse_all(function, Outcome::not_restored, now, out);
        else if (now < function.retry_at)
            refuse_all(function, Outcome::function_failing, now, out);
        keep_minimum(function, now, out);
    }
    want_capacity(function, now, out);
    serve_starved(now, out);
}

void Scheduler::count_failure(Function& function, Time now) {
    // The first failure is retried at once.
    const unsigned before = function.failures++;
    function.retry_at = before == 0 ? now : now + std::min(kLongestBackoff, kFirstBackoff << std::min(10u, before - 1));
    activate(function);
}

// The caller has taken the budget; remove() gives it back.
void Scheduler::add_machine(Worker& worker, Time now, Actions& out) {
    auto machine = std::make_unique<Machine>();
    machine->id = MachineId{next_id_++};
    machine->worker = &worker;
    machine->last_used = machine->since = now;
    worker.machines.push_back(machine.get());
    worker.empty_since.reset();
    out.push_back(AddMachine{worker.id, machine->id});
    const MachineId id = machine->id;
    machines_.try_emplace(id, std::move(machine));
}

void Scheduler::mark_closing(Machine& machine, Time now) {
    not_idle(machine);
    machine.state = Machine::State::closing;
    machine.since = now;
    ++closing_;
}

void Scheduler::close(Machine& machine, Time now, Actions& out) {
    mark_closing(machine, now);
    out.push_back(CloseMachine{machine.id});
    Worker& worker = *machine.worker;
    if (worker.staying() == 0)
        stop_worker(worker, now, out);
}

void Scheduler::stop_worker(Worker& worker, Time now, Actions& out) {
    if (worker.stopping)
        return;
    worker.stopping = true;
    if (worker.function->worker == &worker)
        worker.function->worker = nullptr; // the next request starts another worker
    for (Machine* machine : worker.machines)
        if (machine->state == Machine::State::idle || machine->state == Machine::State::starting)
            mark_closing(*machine, now);
    out.push_back(StopWorker{worker.id});
}

void Scheduler::machine_gone(MachineId id, Time now, Actions& out) {
    const auto found = machines_.find(id);
    if (found == machines_.end())
        return;
    Worker& worker = *found->second->worker;
    const bool closed = found->second->state == Machine::State::closing;
    remove(*found->second, out);
    if (worker.machines.empty()) {
        worker.empty_since = now;
        if (closed)
            stop_worker(worker, now, out); // otherwise the worker is ending by itself
    }
    serve_starved(now, out);
}

void Scheduler::remove(Machine& machine, Actions& out) {
    not_idle(machine);
    if (machine.state == Machine::State::closing)
        --closing_;
    if (machine.request)
        finish(machine, true, out);
    std::erase(machine.worker->machines, &machine);
    machine_count_ -= !machine.worker->shares();
    machines_.erase(MachineId{machine.id});
}

void Scheduler::remove(Worker& worker) {
    Function& function = *worker.function;
    --function.workers;
    if (function.worker == &worker)
        function.worker = nullptr;
    if (function.starting == &worker)
        function.starting = nullptr;
    workers_.erase(WorkerId{worker.id});
}

// Stops the worker of a retired function that has finished its requests.
void Scheduler::maybe_end(Function& function, Time now, Actions& out) {
    if (function.retired && function.queue.empty() && function.in_flight == 0 && function.worker)
        stop_worker(*function.worker, now, out);
}

void Scheduler::keep_minimum(Function& function, Time now, Actions& out) {
    const unsigned min = std::min(function.scale.min, function.scale.max);
    if (min == 0 || function.retired || function.held || stopped_)
        return;
    activate(function);
    Worker* const worker = function.worker;
    if (!worker) {
        if (!function.starting && now >= function.retry_at && room()) {
            ++machine_count_;
            start(function, out);
        }
        return;
    }
    while (worker->ready && !worker->ending && worker->staying() < min && room()) {
        machine_count_ += !worker->shares();
        add_machine(*worker, now, out);
    }
}

void Scheduler::expire(Function& function, Time now, Time& next, Actions& out) {
    while (!function.queue.empty() && function.queue.front().deadline != 0) {
        const Time deadline = function.queue.front().deadline;
        if (deadline > now) {
            next = std::min(next, deadline);
            return;
        }
        out.push_back(Refuse{.request = dequeue(function), .function = function.id, .why = Outcome::queue_timeout});
    }
}

void Scheduler::give_up_idle(Function& function, Time now, Time& next, Actions& out) {
    Worker* const worker = function.worker;
    if (!worker || !worker->ready || !function.queue.empty())
        return;
    const Time idle = function.scale.idle_ns;
    const unsigned min = function.retired ? 0 : function.scale.min;
    if (min == 0 && function.in_flight == 0) {
        if (now >= function.last_used + idle)
            return stop_worker(*worker, now, out);
        next = std::min(next, function.last_used + idle);
    }
    // Machines that the load no longer needs. The front was used longest ago.
    for (std::size_t staying = worker->staying(); staying > std::max(1u, min) && !worker->idle.empty(); --staying) {
        Machine& oldest = *worker->idle.front();
        if (now < oldest.last_used + idle) {
            next = std::min(next, oldest.last_used + idle);
            return;
        }
        close(oldest, now, out);
    }
}

// Kills a worker with a machine that takes too long to close or to become ready. Such a machine would keep its place in
// the budget.
void Scheduler::kill_stuck(Worker& worker, Time now, Time& next, Actions& out) {
    if (worker.killed)
        return;
    Time latest = std::numeric_limits<Time>::max();
    if (worker.empty_since)
        latest = *worker.empty_since + kToGo;
    for (const Machine* machine : worker.machines)
        if (machine->state == Machine::State::closing)
            latest = std::min(latest, machine->since + kToGo);
        else if (machine->state == Machine::State::starting)
            latest = std::min(latest, machine->since + kToStart);
    if (now < latest) {
        next = std::min(next, latest);
        return;
    }
    worker.killed = true;
    out.push_back(KillWorker{worker.id});
}

Time Scheduler::tick(Time now, Actions& out) {
    Time next = std::numeric_limits<Time>::max();
    for (const auto& [id, worker] : workers_)
        kill_stuck(*worker, now, next, out);
    for (std::size_t i = 0; i < active_.size(); ++i) { // activate() may append meanwhile
        Function& function = *active_[i];
        expire(function, now, next, out);
        maybe_end(function, now, out);
        give_up_idle(function, now, next, out);
        if (now < function.retry_at) {
            next = std::min(next, function.retry_at);
        } else {
            keep_minimum(function, now, out);
            want_capacity(function, now, out);
        }
    }
    std::erase_if(active_, [now](Function* function) {
        const bool rests = function->workers == 0 && function->queue.empty() && now >= function->retry_at &&
                           (function->retired || function->scale.min == 0);
        function->active = !rests;
        return rests;
    });
    return next;
}

void Scheduler::stop(Time now, Actions& out) {
    stopped_ = true;
    for (const auto& [id, function] : functions_)
        refuse_all(*function, Outcome::stopped, now, out);
    for (const auto& [id, worker] : workers_)
        if (worker.get() != worker->function->starting)
            stop_worker(*worker, now, out);
}

} // namespace kvmserver::request
