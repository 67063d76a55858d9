// Gives requests machines: starts, watches and ends the processes of functions, and lets requests wait.
//
// A process holds the request machines of one version, up to its `max`. The daemon knows what each of them
// does (src/link), so the queue is here, and a request is handed to a machine only when that is clean: what
// waits survives the death of a process.
//
// Four files share the class. supervisor.cpp: requests; supervisor_watch.cpp: its thread, and
// what processes say; supervisor_scale.cpp: how many machines there are; supervisor_start.cpp: starting
// processes.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "src/daemon/control.hpp"
#include "src/daemon/function_process.hpp"
#include "src/daemon/jail_plans.hpp"
#include "src/daemon/output_source.hpp"
#include "src/daemon/target.hpp"
#include "src/store/stored_snapshot.hpp"

namespace kvmserver::daemon {

struct RequestMachineSlot {
    enum class State { starting, idle, busy, closing };
    std::uint64_t id = 0; // of its channel among what is watched
    tinykvm::UniqueFd channel;
    State state = State::starting;
    std::shared_ptr<Job> job; // busy
    std::uint64_t last_used_ns = 0;
    std::uint64_t closing_ns = 0; // since when it is
    std::weak_ptr<RunningProcess> process;
};

struct RunningProcess {
    std::shared_ptr<Target> target;
    std::unique_ptr<FunctionProcess> process;
    std::unique_ptr<store::StoredSnapshot> snapshot; // stays in the store meanwhile
    std::list<std::shared_ptr<RequestMachineSlot>> slots;
    bool ready = false;    // a machine has been
    bool stopping = false; // takes no more requests
    bool broken = false;   // killed for what it did
    std::uint64_t id = 0, started_ns = 0, ready_ns = 0;
    std::uint64_t empty_ns = 0; // since when it has no machine, after it had some
    std::shared_ptr<Outputs::Source> output;
    std::string only_request; // that its output is marked with
    std::string last_words;   // of ours on its stderr
};

class Supervisor {
public:
    // `max_machines`: of all functions together; 0: no limit. `log_rate`: bytes that a function may print in a second;
    // 0: no limit. Everything must outlive it. `finished` is called for each request of which all is known, with the
    // record set; on any thread, must not call back.
    Supervisor(store::Store& store, CacheService& cache, LogStore& logs, Metrics& metrics, std::uint64_t max_machines,
               std::uint64_t log_rate, JailSettings jail, Examinations& examinations,
               std::function<void(const Job&)> finished);
    // Ends all processes: those that are idle at once, others after `patience`.
    ~Supervisor();
    Supervisor(const Supervisor&) = delete;
    Supervisor& operator=(const Supervisor&) = delete;

    // From any thread. The answer comes through `waiter`, perhaps before this returns; its lease is a
    // JobLease.
    void submit(const std::shared_ptr<Target>& target, std::string_view request_id, std::string_view client_ip,
                std::shared_ptr<http::Waiter> waiter);
    // Why the program's connection of a request ended, if that was not the program's own will.
    std::optional<request::Problem> failure_of(Job& job);
    // The reply is complete.
    void record(const std::shared_ptr<Job>& job, AccessRecord record);

    // Routes lead to it: its minimum is kept. Routes do not any more: it finishes what it has.
    void adopt(const std::shared_ptr<Target>& target);
    void retire(const std::shared_ptr<Target>& target);

    std::vector<VersionLive> live() const; // of those that have a process or requests
    struct Sums {
        std::uint64_t processes = 0, machines = 0;
    };
    Sums sums() const;
    std::uint64_t max_machines() const { return max_machines_; }
    // Nothing is in a machine and nothing waits.
    bool quiet() const;

private:
    using Slot = std::shared_ptr<RequestMachineSlot>;
    using Process = std::shared_ptr<RunningProcess>;
    // What waiters are told once the mutex is not held any more.
    struct Delivery {
        std::shared_ptr<http::Waiter> waiter;
        std::shared_ptr<Job> job;
        tinykvm::UniqueFd socket;
        std::optional<request::Problem> problem;
    };
    // Told once the mutex is not held any more.
    struct Todo {
        std::vector<Delivery> deliveries;
        std::vector<std::shared_ptr<Job>> finished;
        std::vector<LogLine> lines;
        std::vector<Process> gone; // destroyed then
    };
    void carry_out(Todo todo);

    // All that follows, but for the threads' own functions, with the mutex held.
    // supervisor.cpp
    void dispatch(const Slot& slot, Waiting waiting, Todo& todo);
    void reject(Waiting waiting, request::Problem problem, Todo& todo);
    void reject_all(Target& target, const request::Problem& problem, Todo& todo);
    bool dispatch_next(const Slot& slot, Todo& todo);
    static request::Circumstances circumstances(const Target& target);
    request::Problem failing_problem(const Target& target) const;
    void finish(const std::shared_ptr<Job>& job, Todo& todo);
    void drop_abandoned(Target& target);
    // supervisor_watch.cpp
    void watch_loop();
    void drain(const Slot& slot, Todo& todo);
    void on_ready(const Slot& slot, const link::Message& message, Todo& todo);
    void break_off(const Slot& slot, Todo& todo);
    void on_slot_gone(const Slot& slot, Todo& todo);
    void on_exit(const Process& process, Todo& todo);
    void forget(const Process& process, Todo& todo);
    void mark_output(RunningProcess& process);
    void finish_output(RunningProcess& process, Todo& todo);
    void note(const Target& target, std::string text, Todo& todo);
    void watch(std::uint64_t id, int fd);
    void wake();
    // supervisor_scale.cpp
    void want_capacity(const std::shared_ptr<Target>& target, Todo& todo);
    bool take_budget(Target& target);
    std::string add_slot(const Process& process, Todo& todo);
    void close_slot(const Slot& slot);
    bool evict_one();
    std::size_t machines_that_go() const;
    void serve_starved(Todo& todo);
    void stop_process(Process process); // by value: the target forgets it
    void maybe_end(Target& target);
    void keep_minimum(const std::shared_ptr<Target>& target, Todo& todo);
    void activate(const std::shared_ptr<Target>& target);
    int tick(Todo& todo); // ms until the next
    void expire_queue(Target& target, std::uint64_t now, std::uint64_t& next, Todo& todo);
    void give_up_idle(Target& target, std::uint64_t now);
    void kill_stuck(std::uint64_t now, Todo& todo);
    // supervisor_start.cpp
    void start_loop();
    void examine_loop();
    void start(const std::shared_ptr<Target>& target);
    void started(const std::shared_ptr<Target>& target, Process process, Todo& todo);
    void start_failed(Target& target, const std::string& why, Todo& todo);
    void count_failure(Target& target, std::string why);

    store::Store& store_;
    CacheService& cache_;
    LogStore& logs_;
    Metrics& metrics_;
    const std::uint64_t max_machines_;
    JailPlans plans_;
    const std::function<void(const Job&)> finished_;
    tinykvm::UniqueFd epoll_, wake_;

    mutable std::mutex mutex_;                    // guards all that follows, and what Target and Job say is its
    std::vector<std::shared_ptr<Target>> active_; // have a process, requests, or a minimum
    std::vector<Process> processes_;
    struct Watched {
        enum class Kind { channel, exit } kind;
        std::weak_ptr<RequestMachineSlot> slot;
        std::weak_ptr<RunningProcess> process;
    };
    std::unordered_map<std::uint64_t, Watched> watched_;
    std::deque<std::weak_ptr<Target>> starved_;
    std::uint64_t next_id_ = 1;
    std::uint64_t machines_ = 0; // that exist or are being made
    bool ticking_ = false;       // the loop looks at queues soon
    bool ending_ = false;
    // What the last process that was started had to fill before it was ready: spare ones have so much memory.
    std::uint64_t hot_bytes_ = 0;
    static constexpr std::uint64_t kMostAhead = 64 << 20;
    struct Start {
        std::shared_ptr<Target> target;
        bool examined = false; // its snapshot was, or cannot be
    };
    std::deque<Start> to_start_, to_examine_;
    std::condition_variable start_wanted_, examination_wanted_;
    Outputs outputs_; // ends before what its lines go to
    std::thread starter_, watcher_, examiners_[2];
};

std::uint64_t now_ns();

} // namespace kvmserver::daemon
