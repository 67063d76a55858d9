// The machines that serve requests: does what the scheduler says, with the processes of functions.
//
// A worker is the process that holds the machines of one version, up to its `max`. The daemon knows what each machine
// does (src/protocol/worker_messages.hpp), so requests wait here, and one is handed to a machine only when that is
// clean: what waits survives the death of a process.
//
// worker_pool.cpp: requests, and what the scheduler says; worker_pool_watch.cpp: its thread, and what workers say.
#pragma once
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

#include "src/daemon/control.hpp"
#include "src/daemon/output_source.hpp"
#include "src/daemon/process_manager.hpp"
#include "src/daemon/request.hpp"
#include "src/protocol/worker_messages.hpp"

namespace kvmserver::daemon {

request::Time now_ns();

struct RunningWorker;

struct WorkerMachine {
    request::MachineId id{};
    RunningWorker* worker = nullptr; // null once the machine is gone
    tinykvm::UniqueFd channel;
    std::shared_ptr<Request> request; // that it has
    bool clean = false;               // and waits for one
};

struct RunningWorker {
    request::WorkerId id{};
    std::shared_ptr<FunctionVersion> version;
    std::unique_ptr<FunctionProcess> process;
    std::unique_ptr<store::StoredSnapshot> snapshot; // stays in the store meanwhile
    std::vector<std::shared_ptr<WorkerMachine>> machines;
    bool ready = false;    // a machine has been
    bool stopping = false; // takes no more requests
    bool broken = false;   // killed for what it did
    std::shared_ptr<Outputs::Source> output;
    std::string only_request; // that its output is marked with
    std::string last_words;   // of ours on its stderr
};

class WorkerPool {
public:
    // `max_machines`: of all functions together; 0: no limit. `log_rate`: bytes that a function may print in a second;
    // 0: no limit. Everything must outlive it. `finished` is called for each request of which all is known, with the
    // record set; on any thread, must not call back.
    WorkerPool(store::Store& store, CacheService& cache, LogStore& logs, Metrics& metrics, std::uint64_t max_machines,
               std::uint64_t log_rate, JailSettings jail, Examinations& examinations,
               std::function<void(const Request&)> finished);
    // Ends all workers: those that are idle at once, others after a while.
    ~WorkerPool();
    WorkerPool(const WorkerPool&) = delete;
    WorkerPool& operator=(const WorkerPool&) = delete;

    struct Incoming {
        std::string_view request_id, client_ip;
        std::string_view opening;  // what the program is to read first
        bool more_follows = false; // than that
    };
    // From any thread. The answer comes through `waiter`, perhaps before this returns; its on_abandon is set.
    std::unique_ptr<RequestLease> submit(const std::shared_ptr<FunctionVersion>& version, const Incoming& incoming,
                                         std::shared_ptr<http::RequestWaiter> waiter);
    // Why the program's connection of a request ended, if that was not the program's own will.
    std::optional<request::Problem> failure_of(Request& request);
    // The reply is complete.
    void record(const std::shared_ptr<Request>& request, AccessRecord record);

    // Routes lead to it: its minimum is kept. Routes do not any more: it finishes what it has.
    void adopt(const std::shared_ptr<FunctionVersion>& version);
    void retire(const std::shared_ptr<FunctionVersion>& version);

    std::vector<VersionLive> live() const; // of those that have a worker or requests
    struct Sums {
        std::uint64_t processes = 0, machines = 0;
    };
    Sums sums() const;
    std::uint64_t max_machines() const { return scheduler_.max_machines(); }
    // Nothing is in a machine and nothing waits.
    bool quiet() const;

private:
    using Machine = std::shared_ptr<WorkerMachine>;
    using Worker = std::shared_ptr<RunningWorker>;
    // What is done once the mutex is not held any more, in this order.
    struct Sending {
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
    struct Afterwards {
        std::vector<LogLine> lines;
        std::vector<Sending> sendings;
        std::vector<Answer> answers;
        std::vector<std::shared_ptr<Request>> finished;
        std::vector<Worker> gone; // destroyed then
    };
    void do_afterwards(Afterwards afterwards);

    // All that follows, but for the threads' own functions, with the mutex held.
    // worker_pool.cpp
    // Tells the scheduler of an event, `event(now, actions)`, and does what it says.
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
    void carry_out(const request::KillWorker& kill, request::Actions& more, Afterwards& after);
    void carry_out(const request::Assign& assign, request::Actions& more, Afterwards& after);
    void carry_out(const request::Refuse& refuse, request::Actions& more, Afterwards& after);
    void carry_out(const request::Finish& finish, request::Actions& more, Afterwards& after);
    request::FunctionId function_of(const std::shared_ptr<FunctionVersion>& version);
    std::shared_ptr<Request> take_request(request::RequestId id);
    void abandon(request::RequestId id);
    void refuse(const std::shared_ptr<Request>& request, request::Problem problem, Afterwards& after);
    static request::Circumstances circumstances(const FunctionVersion& version);
    static request::Problem no_socket(const FunctionVersion& version); // of errno
    static void answer(Request& request, AnswerText text, Afterwards& after);
    // worker_pool_watch.cpp
    void watch_loop();
    void end_stragglers(request::Time now);
    void tick(request::Time now, Afterwards& after);
    void forget_unused(request::Time now, Afterwards& after);
    void not_later_than(request::Time when);
    void started(request::WorkerId id, ProcessManager::Started process, Afterwards& after);
    void start_failed(request::WorkerId id, const std::string& why, Afterwards& after);
    void receive(const Machine& machine, unsigned most, Afterwards& after);
    void connect(WorkerMachine& machine, Afterwards& after);
    bool on_ready(const Machine& machine, const protocol::Message& message, Afterwards& after);
    void break_off(const Machine& machine, Afterwards& after);
    void on_gone(const Machine& machine, Afterwards& after);
    void on_exit(const Worker& worker, Afterwards& after);
    void mark_output(RunningWorker& worker);
    void finish_output(RunningWorker& worker, Afterwards& after);
    void note(const FunctionVersion& version, std::string text, Afterwards& after);
    void watch(std::uint64_t id, int fd);
    void unwatch(int fd);
    void wake();

    LogStore& logs_;
    Metrics& metrics_;
    const std::function<void(const Request&)> finished_;
    tinykvm::UniqueFd epoll_, wake_;

    mutable std::mutex mutex_; // guards all that follows, and what FunctionVersion and Request say is its
    request::Scheduler scheduler_;
    std::unordered_map<request::FunctionId, std::shared_ptr<FunctionVersion>> functions_;
    std::unordered_map<request::WorkerId, std::shared_ptr<FunctionVersion>> starting_;
    std::unordered_map<request::WorkerId, Worker> workers_;
    std::unordered_map<request::MachineId, Machine> machines_;
    std::unordered_map<request::RequestId, std::shared_ptr<Request>> requests_; // that wait or are in a machine
    std::uint64_t next_request_ = 1;
    request::Time next_tick_ = 0, next_look_ = 0;
    bool watching_ = false; // the watcher holds the mutex
    bool ending_ = false;
    request::Time end_ = 0; // then workers are killed
    std::vector<char> room_;

    Outputs outputs_;        // ends before what its lines go to
    ProcessManager manager_; // ends before what it tells
    std::thread watcher_;
};

} // namespace kvmserver::daemon
