// Performs the scheduler's actions with function processes and their machines.
//
// A worker is a process with up to `max` machines of one version. The daemon tracks the state of each machine
// (src/protocol/worker_messages.hpp). Requests wait here and are handed to a machine only when it is clean, so waiting
// requests survive the death of a process.
//
// worker_pool.cpp: requests and the scheduler's actions; worker_pool_watch.cpp: the pool's thread, and messages from
// workers; worker_pool_suspend.cpp: machines that are saved.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include <sys/epoll.h>

#include "src/common/clock.hpp"
#include "src/daemon/control.hpp"
#include "src/daemon/forwarder.hpp"
#include "src/daemon/memory_watch.hpp"
#include "src/daemon/output_source.hpp"
#include "src/daemon/passed_trials.hpp"
#include "src/daemon/process_manager.hpp"
#include "src/daemon/request.hpp"
#include "src/protocol/worker_messages.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::daemon {

struct RunningWorker;

// A request machine in a function process, as the daemon sees it.
struct WorkerMachine {
    request::MachineId id{};
    RunningWorker* worker = nullptr; // null once the machine is gone
    tinykvm::UniqueFd channel;
    std::shared_ptr<Request> request; // the one that it is serving
    bool clean = false;               // it is waiting for a request
};

// A function process with its machines and its output.
struct RunningWorker {
    request::WorkerId id{};
    std::shared_ptr<FunctionVersion> version;
    std::unique_ptr<FunctionProcess> process;
    std::unique_ptr<store::StoredSnapshot> snapshot; // holds the snapshot in the store meanwhile
    std::shared_ptr<store::SavedState> state;        // of a machine that can be suspended
    std::uint64_t state_bytes = 0;                   // the most that it may take
    std::vector<std::shared_ptr<WorkerMachine>> machines;
    bool ready = false;                       // a machine has become ready
    bool stopping = false;                    // takes no more requests
    bool broken = false;                      // killed for a protocol violation
    bool suspending = false;                  // it saves its machine's state, and ends
    tinykvm::UniqueFd suspend_to;             // the file for that
    bool suspended = false;                   // it has
    tinykvm::UniqueFd checkpoint_done;        // it goes on meanwhile, and tells here; until it is asked
    bool checkpoint = false;                  // it was asked for that
    bool keeps = false;                       // it could not, and keeps the machine in memory
    bool lingered = false;                    // its process had saved the state, and waited for a request
    bool went_on = false;                     // it kept it before: what the machine has is saved nowhere
    std::shared_ptr<std::atomic<bool>> saved; // set once its state is; nobody may ask
    bool forgotten = false;                   // its version is no longer live, so that no state is kept
    std::shared_ptr<Outputs::Source> output;
    std::string only_request; // the request that its output is attributed to
    std::string last_words;   // our own code's last line on its stderr
};

class WorkerPool {
public:
    struct Limits {
        std::uint64_t max_machines = 0;                // of all functions together; 0: no limit
        std::uint64_t log_rate = 0;                    // bytes per second that a function may print; 0: no limit
        std::optional<std::uint64_t> memory_reserve{}; // MemoryWatch
    };
    // All references must outlive this object. `finished` is called for each request once all is known of it, with the
    // record set. `report` gets lines for the daemon's own log. Both run on any thread and must not call back.
    WorkerPool(store::Store& store, CacheService& cache, StorageService& storages, LogStore& logs, Metrics& metrics,
               const Limits& limits, JailSettings jail, Examinations& examinations,
               std::function<void(Request&)> finished, std::function<void(const std::string&)> report);
    // Ends all workers: idle ones at once, busy ones after a while.
    ~WorkerPool();
    WorkerPool(const WorkerPool&) = delete;
    WorkerPool& operator=(const WorkerPool&) = delete;

    struct Incoming {
        std::string_view request_id{}, client_ip{};
        std::string_view opening{}; // the first bytes that the program is to read
        bool more_follows = false;  // after `opening`
        std::string_view route{};   // for its trace
        // A connection of a TCP function: the answer is a socket, and there is no opening.
        bool stream = false;
        std::uint16_t client_port = 0, listen_port = 0;
        bool at_listener = false; // listen_port is the number of the program's listener instead
    };
    // Any thread. The answer comes through `waiter`, perhaps before this returns. Sets the waiter's on_abandon.
    std::unique_ptr<RequestLease> submit(const std::shared_ptr<FunctionVersion>& version, const Incoming& incoming,
                                         std::shared_ptr<http::RequestWaiter> waiter);
    // Why a request's connection to the program ended, unless the program closed it.
    std::optional<request::Problem> failure_of(Request& request);
    // Call when the reply is complete.
    void record(const std::shared_ptr<Request>& request, AccessRecord record);

    // All of these are for each machine of a version that has several with states of their own.
    // adopt: the version is routed to, and its minimum of machines is kept. retire: it is no longer routed to and only
    // finishes its requests.
    void adopt(const std::shared_ptr<FunctionVersion>& version);
    enum class States { stay, are_forgotten }; // what its machines have saved
    void retire(const std::shared_ptr<FunctionVersion>& version, States states);
    void forget_states(const std::shared_ptr<FunctionVersion>& version); // unless a process has them
    // The version's next process is restored from this snapshot; the one that runs goes on.
    void restore_from(const std::shared_ptr<FunctionVersion>& version, const Digest& snapshot);
    // Which snapshot its next process is restored from.
    Digest snapshot_of(const FunctionVersion& version) const;

    // For a version whose machines may be suspended: Control::suspend() and resume().
    unsigned suspend(const std::shared_ptr<FunctionVersion>& version);
    void resume(const std::shared_ptr<FunctionVersion>& version);
    // Its processes end once their requests are done, and requests wait. If its machines can be suspended, they are
    // saved, and this returns then. Throws UserError if the requests take longer than `patience`, or if a state could
    // not be saved: requests do not wait then.
    void hold(const std::shared_ptr<FunctionVersion>& version, std::chrono::milliseconds patience);
    void release(const std::shared_ptr<FunctionVersion>& version);
    // Control::checkpoint().
    std::vector<Checkpoint> checkpoint(const std::shared_ptr<FunctionVersion>& version,
                                       std::chrono::milliseconds patience);
    // Requests that wait, and all that still come for it, go to the other daemon.
    void forward(const std::shared_ptr<FunctionVersion>& version, const store::Moved& moved);

    std::vector<VersionLive> live() const; // versions that have a worker or requests
    ProcessManager& processes() { return manager_; }
    PassedTrials& passed_trials() { return passed_trials_; }
    struct Sums {
        std::uint64_t processes = 0, machines = 0;
        std::uint64_t given_back = 0; // machines that were ended because memory was short
    };
    Sums sums() const;
    std::uint64_t max_machines() const { return scheduler_.max_machines(); }
    // Whether no request waits or is in a machine.
    bool quiet() const;
    // Whether a process is about to be restored from this snapshot.
    bool starts_from(const Digest& snapshot) const;

private:
    using Machine = std::shared_ptr<WorkerMachine>;
    using Worker = std::shared_ptr<RunningWorker>;
    struct Sending { // a message to a machine
        Machine machine;
        protocol::Message message;
        std::string bytes;
        tinykvm::UniqueFd socket;
    };
    struct Connected {
        tinykvm::UniqueFd socket;
        bool for_rest = false;
    };
    struct Replied {
        std::string bytes;
        http::Closing closing = http::Closing::reset;
        http::Sender sender = http::Sender::front;
    };
    using AnswerText = std::variant<Replied, Connected, request::Problem>;
    struct Answer {
        std::shared_ptr<http::RequestWaiter> waiter;
        AnswerText text;
    };
    struct Forward {
        std::shared_ptr<http::RequestWaiter> waiter;
        store::Moved moved;
        std::string function;
    };
    // What to do after the mutex has been released, in this order.
    struct Afterwards {
        std::vector<LogLine> lines;
        std::vector<Sending> sendings;
        std::vector<Answer> answers;
        std::vector<Forward> forwards;
        std::vector<std::shared_ptr<Request>> finished;
        std::vector<Worker> gone; // destroyed then
        std::string report;       // "": nothing
    };
    void do_afterwards(Afterwards afterwards);
    void end_suspend(RunningWorker& worker);
    void linger(RunningWorker& worker);
    bool lingers(const RunningWorker& worker) const; // once its machine is saved; the mutex is held
    struct Ending {                                  // a process that is asked to save its machine's state
        std::weak_ptr<RunningWorker> worker;
        std::shared_ptr<std::atomic<bool>> saved;
    };
    static Ending ending_of(const Worker& worker);
    bool can_save(const RunningWorker& worker) const; // the mutex is held
    Checkpoint prepare_checkpoint(RunningWorker& worker);
    enum class HoldEnd { held, has_requests, does_not_end };
    HoldEnd await_held(const std::shared_ptr<FunctionVersion>& version, const std::vector<Ending>& ending,
                       std::chrono::milliseconds patience);
    static tinykvm::UserError has_requests(const std::shared_ptr<FunctionVersion>& version,
                                           std::chrono::milliseconds patience);
    void forget_state(const FunctionVersion& version);
    tinykvm::UserError not_saved(const std::shared_ptr<FunctionVersion>& version);
    bool save_unsaved(const std::shared_ptr<FunctionVersion>& version, unsigned& saved);

    // The mutex is held for all that follows, except for the threads' own functions.
    // worker_pool.cpp
    // Passes an event, `event(now, actions)`, to the scheduler and performs the resulting actions.
    template <class Event>
    void schedule(const Event& event, Afterwards& after) {
        request::Actions actions;
        event(now_ns(), actions);
        carry_out(actions, after);
    }
    void carry_out(request::Actions& actions, Afterwards& after);
    void carry_out(const request::StartWorker& start, request::Actions& more, Afterwards& after);
    void carry_out(const request::AddMachine& add, request::Actions& more, Afterwards& after);
    void carry_out(const request::CloseMachine& close, request::Actions& more, Afterwards& after);
    void carry_out(const request::StopWorker& stop, request::Actions& more, Afterwards& after);
    bool save_state(RunningWorker& worker, Afterwards& after);
    void carry_out(const request::KillWorker& kill, request::Actions& more, Afterwards& after);
    void carry_out(const request::Assign& assign, request::Actions& more, Afterwards& after);
    void carry_out(const request::Refuse& refuse, request::Actions& more, Afterwards& after);
    void carry_out(const request::Finish& finish, request::Actions& more, Afterwards& after);
    static const Digest& next_snapshot(const FunctionVersion& version); // the mutex is held
    request::FunctionId function_of(const std::shared_ptr<FunctionVersion>& version);
    std::shared_ptr<Request> take_request(request::RequestId id);
    void abandon(request::RequestId id);
    void refuse(const std::shared_ptr<Request>& request, request::Problem problem, Afterwards& after);
    static request::Circumstances circumstances(const FunctionVersion& version);
    static request::Problem no_socket(const FunctionVersion& version); // for errno
    static void answer(Request& request, AnswerText text, Afterwards& after);
    static void forward(Request& request, const store::Moved& moved, Afterwards& after);
    // worker_pool_watch.cpp
    void watch_loop();
    void end_stragglers(request::Time now);
    void tick(request::Time now, Afterwards& after);
    void check_states(request::Time now);
    void relieve(request::Time now, bool stalled, Afterwards& after);
    void forget_unused(request::Time now, Afterwards& after);
    void not_later_than(request::Time when);
    void started(request::WorkerId id, ProcessManager::Started process, Afterwards& after);
    void start_failed(request::WorkerId id, const ProcessManager::NotStarted& failed, Afterwards& after);
    void receive(const Machine& machine, unsigned max_messages, Afterwards& after);
    void connect(WorkerMachine& machine, Afterwards& after);
    bool on_ready(const Machine& machine, const protocol::Message& message, Afterwards& after);
    void break_off(const Machine& machine, Afterwards& after);
    void on_gone(const Machine& machine, Afterwards& after);
    void on_exit(const Worker& worker, Afterwards& after);
    void on_control(const Worker& worker, Afterwards& after);
    void keep_unsaved(RunningWorker& worker);
    void remove(const Worker& worker, bool as_wanted, Afterwards& after);
    void mark_output(RunningWorker& worker);
    void finish_output(RunningWorker& worker, Afterwards& after);
    void note(const FunctionVersion& version, std::string text, Afterwards& after);
    static constexpr std::uint64_t kStall = UINT64_MAX; // for watch(): memory_.stall_fd()
    void watch(std::uint64_t id, int fd, std::uint32_t events = EPOLLIN);
    void unwatch(int fd);
    void wake();

    store::Store& store_;
    LogStore& logs_;
    Metrics& metrics_;
    const std::function<void(Request&)> finished_;
    const std::function<void(const std::string&)> report_;
    const MemoryWatch memory_;
    PassedTrials passed_trials_;
    tinykvm::UniqueFd epoll_, wake_;

    mutable std::mutex mutex_; // guards all that follows, and the members of FunctionVersion and Request that say so
    request::Scheduler scheduler_;
    std::unordered_map<request::FunctionId, std::shared_ptr<FunctionVersion>> functions_;
    std::unordered_map<request::WorkerId, std::shared_ptr<FunctionVersion>> starting_;
    std::unordered_map<request::WorkerId, Worker> workers_;
    std::unordered_map<request::MachineId, Machine> machines_;
    std::unordered_map<request::RequestId, std::shared_ptr<Request>> requests_; // that wait or are in a machine
    std::uint64_t next_request_ = 1;
    request::Time next_tick_ = 0, next_look_ = 0, next_check_ = 0;
    std::uint64_t given_back_ = 0, reported_ = 0; // machines, for lack of memory
    request::Time next_report_ = 0;
    bool watching_ = false; // the watcher is handling events and will compute its time-out afterwards
    bool ending_ = false;
    request::Time end_ = 0; // when workers are killed, once ending_
    std::vector<char> room_;

    Forwarder forwarder_;
    Outputs outputs_;        // destroyed before what its lines go to
    ProcessManager manager_; // destroyed before what it reports to
    std::thread watcher_;
    std::condition_variable gone_; // a worker was destroyed, or a request is over; with the mutex
};

} // namespace kvmserver::daemon
