// Requests: which get a machine, which wait, which are refused.
#include "src/request/scheduler.hpp"

#include <algorithm>

#include "src/request/scheduler_state.hpp"

namespace kvmserver::request {

Scheduler::Scheduler(std::uint64_t max_machines) : max_machines_(max_machines) {}

Scheduler::~Scheduler() = default;

FunctionId Scheduler::add(const Scale& scale) {
    auto function = std::make_unique<Function>();
    function->id = FunctionId{next_id_++};
    function->scale = scale;
    function->scale.max = std::max(1u, scale.max);
    return functions_.try_emplace(function->id, std::move(function)).first->first;
}

void Scheduler::adopt(FunctionId id, Time now, Actions& out) {
    Function& function = *functions_.at(id);
    function.retired = false;
    keep_minimum(function, now, out);
}

void Scheduler::retire(FunctionId id, Time now, Actions& out) {
    Function& function = *functions_.at(id);
    function.retired = true;
    maybe_end(function, now, out);
}

bool Scheduler::forget(FunctionId id) {
    const auto found = functions_.find(id);
    const Function& function = *found->second;
    if (!function.retired || function.workers != 0 || !function.queue.empty())
        return false;
    std::erase(active_, &function);
    std::erase(starved_, id);
    functions_.erase(found);
    return true;
}

void Scheduler::arrive(RequestId request, FunctionId id, Time now, Actions& out) {
    Function& function = *functions_.at(id);
    function.last_used = now;
    Worker* const worker = function.worker;
    const bool waits = !function.queue.empty();
    if (stopped_) {
        out.push_back(Refuse{.request = request, .function = id, .why = Outcome::stopped});
    } else if (worker && !worker->idle.empty() && !waits) {
        assign(*worker->idle.back(), request, now, out);
    } else if (!worker && !function.starting && now < function.retry_at) {
        out.push_back(failing(function, request, now));
    } else {
        // Requests that wait for the first machine do not count against the queue: a queue of 0 means that requests are
        // refused rather than kept waiting for a busy machine.
        const std::size_t waiting = function.queue.size();
        const bool all_busy =
            worker && worker->ready && waiting >= function.scale.queue && function.in_flight >= function.scale.max;
        if (all_busy || waiting >= std::max(function.scale.queue, function.scale.max)) {
            out.push_back(Refuse{.request = request,
                                 .function = id,
                                 .why = Outcome::queue_full,
                                 .all_busy = all_busy,
                                 .waiting = waiting});
            return;
        }
        const Time patience = function.scale.queue_ns;
        function.queue.push_back({request, now, patience ? now + patience : 0});
        waiting_.emplace(request, QueueEntry{&function, std::prev(function.queue.end())});
        activate(function);
        want_capacity(function, now, out);
    }
}

void Scheduler::abandon(RequestId request) {
    const auto found = waiting_.find(request);
    if (found == waiting_.end())
        return;
    found->second.function->queue.erase(found->second.at);
    waiting_.erase(found);
}

RequestId Scheduler::dequeue(Function& function) {
    const RequestId request = function.queue.front().request;
    waiting_.erase(request);
    function.queue.pop_front();
    return request;
}

void Scheduler::assign(Machine& machine, RequestId request, Time now, Actions& out) {
    not_idle(machine);
    machine.state = Machine::State::busy;
    machine.request = request;
    Function& function = *machine.worker->function;
    machine.last_used = function.last_used = now;
    ++function.in_flight;
    ++in_flight_;
    out.push_back(Assign{request, machine.id});
}

// Assigns the next waiting request of the machine's function. Returns false if none waits.
bool Scheduler::assign_next(Machine& machine, Time now, Actions& out) {
    Function& function = *machine.worker->function;
    if (function.queue.empty())
        return false;
    assign(machine, dequeue(function), now, out);
    return true;
}

void Scheduler::not_assigned(MachineId id, Time now, Actions& out) {
    const auto found = machines_.find(id);
    if (found == machines_.end() || found->second->state != Machine::State::busy)
        return;
    Machine& machine = *found->second;
    machine.request.reset();
    --machine.worker->function->in_flight;
    --in_flight_;
    if (machine.worker->stopping || machine.worker->ending)
        return mark_closing(machine, now);
    make_idle(machine, now);
    assign_next(machine, now, out);
}

bool Scheduler::machine_ready(MachineId id, Time now, Actions& out) {
    const auto found = machines_.find(id);
    if (found == machines_.end())
        return true; // machine_gone() came first
    Machine& machine = *found->second;
    Worker& worker = *machine.worker;
    Function& function = *worker.function;
    if (machine.state == Machine::State::idle)
        return false;
    if (!worker.ready) {
        worker.ready = true;
        worker.ready_at = now;
    }
    machine.last_used = now;
    if (machine.request) {
        finish(machine, false, out);
        function.last_used = now;
    }
    if (machine.state == Machine::State::closing)
        return true;
    if (worker.stopping || worker.ending) {
        mark_closing(machine, now);
        return true;
    }
    make_idle(machine, now);
    if (should_yield(function)) {
        close(machine, now, out);
        want_capacity(function, now, out); // it waits its turn behind the starved functions
    } else if (assign_next(machine, now, out)) {
        want_capacity(function, now, out);
    } else {
        maybe_end(function, now, out);
        keep_minimum(function, now, out);
    }
    return true;
}

void Scheduler::finish(Machine& machine, bool worker_died, Actions& out) {
    out.push_back(Finish{*machine.request, worker_died});
    machine.request.reset();
    --machine.worker->function->in_flight;
    --in_flight_;
}

Refuse Scheduler::failing(const Function& function, RequestId request, Time now) const {
    return {.request = request,
            .function = function.id,
            .why = Outcome::function_failing,
            .failures = function.failures,
            .retry_ns = function.retry_at - std::min(now, function.retry_at)};
}

void Scheduler::refuse_all(Function& function, Outcome why, Time now, Actions& out) {
    while (!function.queue.empty()) {
        Refuse refuse = failing(function, dequeue(function), now);
        refuse.why = why;
        out.push_back(refuse);
    }
}

std::vector<RequestId> Scheduler::take_waiting(FunctionId id) {
    Function& function = *functions_.at(id);
    std::vector<RequestId> all;
    while (!function.queue.empty())
        all.push_back(dequeue(function));
    return all;
}

bool Scheduler::has_worker(FunctionId id) const { return functions_.at(id)->workers != 0; }

std::size_t Scheduler::waiting(FunctionId id) const { return functions_.at(id)->queue.size(); }

bool Scheduler::ready(FunctionId id) const {
    const Worker* const worker = functions_.at(id)->worker;
    return worker && worker->ready;
}

Scheduler::Live Scheduler::live(FunctionId id, Time now) const {
    const Function& function = *functions_.at(id);
    Live live;
    live.in_flight = function.in_flight;
    live.waiting = function.queue.size();
    live.starts = function.starts;
    if (const Worker* worker = function.worker) {
        live.state = worker->ready ? Live::State::ready : Live::State::starting;
        live.worker = worker->id;
        live.machines = worker->machines.size();
        live.busy = worker->count(Machine::State::busy);
        if (function.scale.kept) { // they are channels of one
            live.machines = std::min<std::uint64_t>(live.machines, 1);
            live.busy = std::min<std::uint64_t>(live.busy, 1);
        }
    } else if (function.starting) {
        live.state = Live::State::starting;
    } else if (now < function.retry_at) {
        live.state = Live::State::failing;
    }
    return live;
}

} // namespace kvmserver::request
