// Which machine serves which request, how long requests wait, and how many machines there are.
//
// It does no I/O and has no lock, thread or clock: what happened goes in with its time, what is to be done comes out.
// Who owns it (the daemon, HTTP mode) calls it under one mutex of its own and does the actions in their order.
//
// A *function* is a version that requests are for. A *worker* is the process that holds its *machines*; HTTP mode has
// one function and is its own worker. A machine has one request at a time, and the next only once it is clean again.
#pragma once
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>
#include <variant>
#include <vector>

#include "src/request/outcome.hpp"

namespace kvmserver::request {

enum class FunctionId : std::uint64_t {};
enum class WorkerId : std::uint64_t {};
enum class MachineId : std::uint64_t {};
enum class RequestId : std::uint64_t {};

using Time = std::uint64_t; // nanoseconds of a clock that never goes back

struct Scale {
    unsigned min = 0, max = 1; // machines
    Time idle_ns = 0;          // after so long without a request they are given up
    unsigned queue = 0;        // requests that may wait while all machines are busy
    Time queue_ns = 0;         // how long; 0: no limit
};

// What is to be done. Each id in them is one that the owner knows, or of a machine or worker that begins with it.
struct StartWorker { // then: worker_started() or start_failed()
    FunctionId function;
    WorkerId worker;
};
struct AddMachine { // then: machine_ready() when it is, machine_gone() when it cannot be
    WorkerId worker;
    MachineId machine;
};
struct CloseMachine { // it has no request; then: machine_gone()
    MachineId machine;
};
struct StopWorker { // its machines end, those that are busy after their requests; then: worker_exited()
    WorkerId worker;
};
struct KillWorker { // it does not end; then: worker_exited()
    WorkerId worker;
};
struct Assign { // then: machine_ready() when it is clean again, or not_assigned()
    RequestId request;
    MachineId machine;
};
struct Refuse { // the last that is said of this request
    RequestId request;
    FunctionId function;
    Outcome why = Outcome::queue_full; // queue_full, queue_timeout, function_failing, not_restored or stopped
    bool all_busy = false;             // queue_full: else a worker is being started
    std::uint64_t waiting = 0;         // queue_full
    unsigned failures = 0;             // function_failing
    Time retry_ns = 0;                 // function_failing: from now
};
struct Finish { // the last that is said of this request: its machine is clean, or gone
    RequestId request;
    bool worker_died = false;
};
using Action = std::variant<StartWorker, AddMachine, CloseMachine, StopWorker, KillWorker, Assign, Refuse, Finish>;
using Actions = std::vector<Action>;

class Scheduler {
public:
    explicit Scheduler(std::uint64_t max_machines); // of all functions; 0: no limit
    ~Scheduler();
    Scheduler(const Scheduler&) = delete;
    Scheduler& operator=(const Scheduler&) = delete;

    FunctionId add(const Scale& scale);
    // Requests lead to it: its minimum is kept.
    void adopt(FunctionId function, Time now, Actions& out);
    // None do any more: it finishes what it has.
    void retire(FunctionId function, Time now, Actions& out);
    // False: it is not retired, or has something yet.
    bool forget(FunctionId function);

    // `request`: not one that was used before. The answer is an Assign, a Refuse, or later one of them.
    void arrive(RequestId request, FunctionId function, Time now, Actions& out);
    // Nobody wants an answer any longer. Only while it waits; else nothing happens, and its Finish comes.
    void abandon(RequestId request);

    void worker_started(WorkerId worker, Time now, Actions& out);
    void start_failed(WorkerId worker, Time now, Actions& out);
    // As it was to (StopWorker), and without complaint: `as_wanted`.
    void worker_exited(WorkerId worker, bool as_wanted, Time now, Actions& out);
    // It can take a request; had it one, that is over. False: it is so already, and nothing happens: its worker lies.
    bool machine_ready(MachineId machine, Time now, Actions& out);
    void machine_gone(MachineId machine, Time now, Actions& out);
    // What it was assigned it was not given: no descriptor was left, say. Nothing more is said of that request.
    void not_assigned(MachineId machine, Time now, Actions& out);

    // Time limits and idle machines. Returns when it wants to be called again at the latest.
    Time tick(Time now, Actions& out);
    // No more workers are started; all end when they have finished.
    void stop(Time now, Actions& out);

    struct Live {
        enum class State { idle, starting, ready, failing } state = State::idle;
        std::uint64_t in_flight = 0, waiting = 0, machines = 0, busy = 0, starts = 0;
        std::optional<WorkerId> worker; // that takes requests
    };
    Live live(FunctionId function, Time now) const;
    bool ready(FunctionId function) const;                    // a machine of it has been
    std::uint64_t machines() const { return machine_count_; } // with those that are being made
    std::uint64_t workers() const { return workers_.size(); }
    std::uint64_t max_machines() const { return max_machines_; }
    bool quiet() const { return waiting_.empty() && in_flight_ == 0; } // no request waits or is in a machine
    bool waits(RequestId request) const { return waiting_.contains(request); }
    std::size_t waiting() const { return waiting_.size(); } // requests, of all functions
    std::size_t waiting(FunctionId function) const;

private:
    struct Function;
    struct Worker;
    struct Machine;
    struct Waiting {
        RequestId request;
        Time since = 0, deadline = 0; // 0: none
    };
    struct Place { // of a request that waits
        Function* function;
        std::list<Waiting>::iterator at;
    };

    void assign(Machine& machine, RequestId request, Time now, Actions& out);
    bool assign_next(Machine& machine, Time now, Actions& out);
    RequestId dequeue(Function& function);
    void refuse_all(Function& function, Outcome why, Time now, Actions& out);
    Refuse failing(const Function& function, RequestId request, Time now) const;
    void finish(Machine& machine, bool worker_died, Actions& out);
    void make_idle(Machine& machine, Time now);
    void not_idle(Machine& machine);

    void want_capacity(Function& function, Time now, Actions& out);
    bool take_budget(Function& function, Time now, Actions& out);
    bool evict_one(Time now, Actions& out);
    void serve_starved(Time now, Actions& out);
    bool should_yield(const Function& function) const;
    bool room() const { return max_machines_ == 0 || machine_count_ < max_machines_; }
    void start(Function& function, Actions& out);
    void activate(Function& function);
    void add_machine(Worker& worker, Time now, Actions& out);
    void close(Machine& machine, Time now, Actions& out);
    void mark_closing(Machine& machine, Time now);
    void stop_worker(Worker& worker, Time now, Actions& out);
    void remove(Machine& machine, Actions& out);
    void remove(Worker& worker);
    void maybe_end(Function& function, Time now, Actions& out);
    void keep_minimum(Function& function, Time now, Actions& out);
    void count_failure(Function& function, Time now);

    void expire(Function& function, Time now, Time& next, Actions& out);
    void give_up_idle(Function& function, Time now, Time& next, Actions& out);
    void kill_stuck(Worker& worker, Time now, Time& next, Actions& out);

    const std::uint64_t max_machines_;
    std::uint64_t next_id_ = 1;
    std::uint64_t machine_count_ = 0, in_flight_ = 0;
    std::size_t closing_ = 0; // machines that were told to go
    bool stopped_ = false;
    std::unordered_map<FunctionId, std::unique_ptr<Function>> functions_;
    std::unordered_map<WorkerId, std::unique_ptr<Worker>> workers_; // with those that are being started
    std::unordered_map<MachineId, std::unique_ptr<Machine>> machines_;
    std::unordered_map<RequestId, Place> waiting_;
    std::vector<Function*> active_;  // have a worker, requests, failures or a minimum
    std::deque<FunctionId> starved_; // wait for machines of others, the first that did first
};

} // namespace kvmserver::request
