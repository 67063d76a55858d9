// The scheduler's records of functions, workers and machines. Private to its own files.
#pragma once
#include <algorithm>
#include <optional>
#include <vector>

#include "src/request/scheduler.hpp"

namespace kvmserver::request {

struct Scheduler::Function {
    FunctionId id;
    Scale scale;
    std::list<Waiting> queue;   // oldest first
    Worker* worker = nullptr;   // takes requests
    Worker* starting = nullptr; // being started by the owner
    std::size_t workers = 0;    // including those that are ending
    bool active = false, starved = false, retired = false;
    bool held = false;     // its requests wait: no worker is started for them
    unsigned failures = 0; // in a row
    Time retry_at = 0, last_used = 0;
    std::uint64_t in_flight = 0, starts = 0;
};

struct Scheduler::Machine {
    enum class State { starting, idle, busy, closing };
    MachineId id;
    Worker* worker;
    State state = State::starting;
    std::optional<RequestId> request; // when busy
    Time last_used = 0;
    Time since = 0; // when it began to start or to close
};

struct Scheduler::Worker {
    WorkerId id;
    Function* function;
    std::vector<Machine*> machines;
    std::vector<Machine*> idle; // the last one used is at the end: its memory is warm
    bool ready = false;         // a machine has become ready
    bool stopping = false;      // takes no more requests
    bool ending = false;        // neither, but nobody asked it to end: it is replaced once it has exited
    bool killed = false;
    Time ready_at = 0;
    std::optional<Time> empty_since; // since when it has had no machine

    std::size_t count(Machine::State state) const {
        return static_cast<std::size_t>(std::ranges::count(machines, state, &Machine::state));
    }
    std::size_t staying() const { return machines.size() - count(Machine::State::closing); }
    // Whether another machine of this worker does not count in the total.
    bool shares() const { return function->scale.kept && !machines.empty(); }
};

} // namespace kvmserver::request
