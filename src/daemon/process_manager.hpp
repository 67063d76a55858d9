// Starts the processes of functions, on threads of its own: hot functions do not wait for cold ones.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <variant>

#include "src/daemon/function_process.hpp"
#include "src/daemon/jail_plans.hpp"
#include "src/daemon/request.hpp"
#include "src/request/scheduler.hpp"

namespace kvmserver::daemon {

class ProcessManager {
public:
    struct Started {
        std::unique_ptr<store::StoredSnapshot> snapshot; // stays in the store meanwhile
        std::unique_ptr<FunctionProcess> process;        // has been told what it serves
    };
    // `done`: for each start(), on a thread of this or within end(): a process, or why there is none. All must outlive
    // it.
    using Done = std::function<void(request::WorkerId worker, std::variant<Started, std::string> result)>;
    ProcessManager(store::Store& store, CacheService& cache, JailSettings jail, Examinations& examinations, Done done);
    ~ProcessManager();
    ProcessManager(const ProcessManager&) = delete;
    ProcessManager& operator=(const ProcessManager&) = delete;

    // Not after end(). `tell_excess`: it says what its snapshot claims above what it is granted.
    void start(request::WorkerId worker, std::shared_ptr<const FunctionVersion> version, bool tell_excess);
    // What a process has to fill before it is ready: spare ones have so much memory.
    void set_ahead(std::uint64_t bytes);
    // What has not begun by then is not started. Afterwards `done` is not called any more.
    void end();

private:
    struct Start {
        request::WorkerId worker;
        std::shared_ptr<const FunctionVersion> version;
        bool tell_excess = false;
        bool examined = false; // its snapshot was, or cannot be
    };
    void start_loop();
    void examine_loop();
    std::variant<Started, std::string> started(const Start& start, class SpareProcesses& spares);

    store::Store& store_;
    CacheService& cache_;
    JailPlans plans_;
    const Done done_;
    std::mutex mutex_; // guards what follows
    std::deque<Start> to_start_, to_examine_;
    std::condition_variable start_wanted_, examination_wanted_;
    std::uint64_t ahead_bytes_ = 0;
    bool ending_ = false;
    std::thread starter_, examiners_[2];
};

} // namespace kvmserver::daemon
