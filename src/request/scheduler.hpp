// Decides which machine serves which request, how long requests wait, and how many machines there are.
//
// The scheduler does no I/O and has no lock, thread or clock. The owner (the daemon or HTTP mode) passes in events with
// their time, and performs the returned actions in order. It makes all calls under one mutex.
//
// A *function* is a version that requests are for. A *worker* is the process that holds the function's *machines*. HTTP
// mode has one function and acts as its own worker. A machine serves one request at a time, and takes the next only
// after it has been reset.
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

using Time = std::uint64_t; // nanoseconds of a monotonic clock

struct Scale {
    unsigned min = 0, max = 1; // machines
    Time idle_ns = 0;          // machines and workers without a request for this long are stopped
    unsigned queue = 0;        // requests that may wait while all machines are busy
    Time queue_ns = 0;         // longest wait in the queue; 0: no limit
    // What is called machines here are the channels of one machine that keeps its state and serves `max` requests at
    // once. Only the first counts in the total, and none is taken away for other functions.
    bool kept = false;
    bool saved = false; // kept: and what it keeps is saved when its worker stops
};

// Actions for the owner. Each names what the owner already knows, except that StartWorker and AddMachine introduce a
// new id. "then:" names the call with which the owner reports the result.
struct StartWorker { // then: worker_started() or start_failed()
    FunctionId function;
    WorkerId worker;
};
struct AddMachine { // then: machine_ready(), or machine_gone() if it cannot be made
    WorkerId worker;
    MachineId machine;
};
struct CloseMachine { // it has no request; then: machine_gone()
    MachineId machine;
};
struct StopWorker { // idle machines end now, busy ones after their requests; then: worker_exited()
    WorkerId worker;
};
struct KillWorker { // it did not stop in time; then: worker_exited()
    WorkerId worker;
};
struct Assign { // then: machine_ready() once the machine is clean again, or not_assigned()
    RequestId request;
    MachineId machine;
};
struct Refuse { // the last action for this request
    RequestId request;
    FunctionId function;
    Outcome why = Outcome::queue_full; // queue_full, queue_timeout, function_failing, not_restored or stopped
    bool all_busy = false;             // queue_full: all machines are busy; otherwise a worker is still starting
    std::uint64_t waiting = 0;         // queue_full
    unsigned failures = 0;             // function_failing
    Time retry_ns = 0;                 // function_failing: time until the next start
};
struct Finish { // the last action for this request: its machine is clean again or gone
    RequestId request;
    bool worker_died = false;
};
using Action = std::variant<StartWorker, AddMachine, CloseMachine, StopWorker, KillWorker, Assign, Refuse, Finish>;
using Actions = std::vector<Action>;

class Scheduler {
public:
    explicit Scheduler(std::uint64_t max_machines); // of all functions together; 0: no limit
    ~Scheduler();
    Scheduler(const Scheduler&) = delete;
    Scheduler& operator=(const Scheduler&) = delete;

    FunctionId add(const Scale& scale);
    // Requests are now routed to this function: its minimum of machines is kept running.
    void adopt(FunctionId function, Time now, Actions& out);
    // No more requests are routed to it. It finishes those it has, then its worker stops.
    void retire(FunctionId function, Time now, Actions& out);
    // Its worker ends once those requests are done that it has, although it is not idle for long; the next one serves
    // those that wait. wake(): it starts without a request.
    void rest(FunctionId function, Time now, Actions& out);
    void wake(FunctionId function, Time now, Actions& out);
    // Requests wait, whatever else is said, until release(): its worker ends once those that it has are done.
    void hold(FunctionId function, Time now, Actions& out);
    void release(FunctionId function, Time now, Actions& out);
    // Takes those that wait away from here. No action follows for them.
    std::vector<RequestId> take_waiting(FunctionId function);
    // Removes a retired function. Returns false if it is not retired or still has workers or waiting requests.
    bool forget(FunctionId function);

    // `request` is a new id. The request is assigned or refused now or later.
    void arrive(RequestId request, FunctionId function, Time now, Actions& out);
    // The client no longer waits. Removes the request from the queue; if it is not waiting, does nothing and its Finish
    // still follows.
    void abandon(RequestId request);

    void worker_started(WorkerId worker, Time now, Actions& out);
    void start_failed(WorkerId worker, Time now, Actions& out);
    // The worker is ending by itself: it gets no more requests. worker_exited() follows.
    void worker_ending(WorkerId worker, Time now);
    // It has ended before it could serve, for which the function is not to blame: worker_exited() follows, as wanted,
    // and another takes its place.
    void worker_useless(WorkerId worker);
    // `as_wanted`: the worker ended because of StopWorker, without an error.
    void worker_exited(WorkerId worker, bool as_wanted, Time now, Actions& out);
    // The machine is clean and can take a request; a request that it had is finished. Returns false and changes nothing
    // if the machine was idle already: the worker then breaks the protocol.
    bool machine_ready(MachineId machine, Time now, Actions& out);
    void machine_gone(MachineId machine, Time now, Actions& out);
    // The owner could not hand over the request (no file descriptor was left, for example). No further action follows
    // for that request.
    void not_assigned(MachineId machine, Time now, Actions& out);

    // Expires waiting requests, stops idle machines and kills stuck workers. Returns the time of the next call at the
    // latest.
    Time tick(Time now, Actions& out);
    // Memory is short: closes some of the machines that nobody needs, those first that have been idle for longest, and
    // none of which was used within the last second. Closes none while others are still ending. Returns how many.
    unsigned give_back(Time now, Actions& out);
    // Starts no more workers. All workers stop when their requests are finished.
    void stop(Time now, Actions& out);

    struct Live {
        enum class State { idle, starting, ready, failing } state = State::idle;
        std::uint64_t in_flight = 0, waiting = 0, machines = 0, busy = 0, starts = 0;
        std::optional<WorkerId> worker; // the one that takes requests
    };
    Live live(FunctionId function, Time now) const;
    bool ready(FunctionId function) const;                    // it has had a ready machine
    std::uint64_t machines() const { return machine_count_; } // including those that are starting
    std::uint64_t workers() const { return workers_.size(); }
    std::uint64_t max_machines() const { return max_machines_; }
    bool quiet() const { return waiting_.empty() && in_flight_ == 0; } // no request waits or is in a machine
    bool has_worker(FunctionId function) const;                        // also one that is starting or ending
    bool waits(RequestId request) const { return waiting_.contains(request); }
    std::size_t waiting() const { return waiting_.size(); } // of all functions
    std::size_t waiting(FunctionId function) const;

private:
    struct Function;
    struct Worker;
    struct Machine;
    struct Waiting {
        RequestId request;
        Time since = 0, deadline = 0; // 0: none
    };
    struct QueueEntry { // of a waiting request
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
    std::size_t closing_ = 0; // machines that were asked to end
    bool stopped_ = false;
    std::unordered_map<FunctionId, std::unique_ptr<Function>> functions_;
    std::unordered_map<WorkerId, std::unique_ptr<Worker>> workers_; // including those that are starting
    std::unordered_map<MachineId, std::unique_ptr<Machine>> machines_;
    std::unordered_map<RequestId, QueueEntry> waiting_;
    std::vector<Function*> active_;  // have workers, requests, failures or a minimum
    std::deque<FunctionId> starved_; // wait for machines of others, longest wait first
};

} // namespace kvmserver::request
