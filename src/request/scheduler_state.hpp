// What the scheduler knows of functions, workers and machines; for its own files.
#pragma once
#include <algorithm>
#include <optional>
#include <vector>

#include "src/request/scheduler.hpp"

namespace kvmserver::request {

struct Scheduler::Function {
    FunctionId id;
    Scale scale;
    std::list<Waiting> queue;   // the oldest first
    Worker* worker = nullptr;   // that takes requests
    Worker* starting = nullptr; // that the owner is starting
    std::size_t workers = 0;    // with those that are ending
    bool active = false, starved = false, retired = false;
    unsigned failures = 0; // one after the other
    Time retry_at = 0, last_used = 0;
    std::uint64_t in_flight = 0, starts = 0;
};

struct Scheduler::Machine {
    enum class State { starting, idle, busy, closing };
    MachineId id;
    Worker* worker;
    State state = State::starting;
    std::optional<RequestId> request; // busy
    Time last_used = 0;
    Time since = 0; // starting, closing
};

struct Scheduler::Worker {
    WorkerId id;
    Function* function;
    std::vector<Machine*> machines;
    std::vector<Machine*> idle; // the one that was used last is at the end: its memory is warm
    bool ready = false;         // a machine has been
    bool stopping = false;      // takes no more requests
    bool killed = false;
    Time ready_at = 0;
    std::optional<Time> empty_since; // that it has no machine

    std::size_t count(Machine::State state) const {
        return static_cast<std::size_t>(std::ranges::count(machines, state, &Machine::state));
    }
    std::size_t staying() const { return machines.size() - count(Machine::State::closing); }
};

} // namespace kvmserver::request
