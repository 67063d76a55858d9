// Starts function processes on threads of its own, so that requests to running functions do not wait.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "src/daemon/fair_queue.hpp"
#include "src/daemon/function_process.hpp"
#include "src/daemon/jail_plans.hpp"
#include "src/daemon/piece_sender.hpp"
#include "src/daemon/prepared_machine.hpp"
#include "src/daemon/request.hpp"
#include "src/daemon/spare_processes.hpp"
#include "src/daemon/storage_service.hpp"
#include "src/daemon/unsaved_states.hpp"
#include "src/request/scheduler.hpp"
#include "src/store/snapshots/saved_state.hpp"

namespace kvmserver::daemon {

class ProcessManager {
public:
    struct Started {
        std::unique_ptr<store::StoredSnapshot> snapshot; // holds the snapshot in the store meanwhile
        std::unique_ptr<FunctionProcess> process;        // has been told what to serve
        std::shared_ptr<store::SavedState> state;        // of a machine that can be suspended
        std::uint64_t state_bytes = 0;                   // the most that it may take
        bool lingered = false;                           // the process had the machine already: PreparedMachine::until
        bool unsaved = false;                            // the same, but its state is nowhere else
    };
    struct NotStarted {
        std::string why;
        bool chunks_away = false; // its chunks are in a bucket that is not reached
    };
    // `done` is called once for each start(), on a thread of this object or within end(), with a process or the reason
    // why there is none. All arguments must outlive this object.
    using Done = std::function<void(request::WorkerId worker, std::variant<Started, NotStarted> result)>;
    ProcessManager(store::Store& store, CacheService& cache, StorageService& storages, LogStore& logs,
                   JailSettings jail, Examinations& examinations, Done done);
    ~ProcessManager();
    ProcessManager(const ProcessManager&) = delete;
    ProcessManager& operator=(const ProcessManager&) = delete;

    // Not after end(). `report_excess`: the process reports what its snapshot claims above its ceilings.
    void start(request::WorkerId worker, std::shared_ptr<const FunctionVersion> version, const Digest& snapshot,
               bool report_excess);
    // Whether a start of this snapshot has been asked for and has not opened it yet.
    bool starts_from(const Digest& snapshot) const;
    // Sets how much image memory spare processes prepare.
    void set_ahead(std::uint64_t bytes);
    // For a trial: a spare process, or a new one. The spare is not replaced before discard(). Throws HostError.
    std::unique_ptr<FunctionProcess> take_spare() { return spares_.take(); }
    // Kills the process and returns at once: what it has in memory is given back behind.
    void discard(std::unique_ptr<FunctionProcess> process);
    // A machine that could not be suspended; a start of its version gets its process. It is tried again now and then.
    void add_unsaved(UnsavedState one);
    UnsavedStates& unsaved() { return unsaved_; }
    const UnsavedStates& unsaved() const { return unsaved_; }
    // A process that begins to restore a machine whose state is arriving in this file. `bytes`: what there is of it.
    // Null: not for this version. Throws HostError.
    std::unique_ptr<PreparedMachine> prepare(const FunctionVersion& version, const Digest& snapshot, int state,
                                             std::uint64_t bytes);
    // Its state is complete and committed: a start of its version gets its process. Null forgets the one that was
    // given.
    void set_prepared(const FunctionVersion& version, std::unique_ptr<PreparedMachine> machine);
    bool has_lingering() const;
    unsigned end_lingering(); // all of them. Returns how many.
    void check_lingering();   // that they do not fill the disk: FunctionProcess::limit_files()
    // Cancels starts that have not begun, and tries a last time to save what is unsaved. `done` is not called
    // afterwards.
    void end();

private:
    struct Start {
        request::WorkerId worker;
        std::shared_ptr<const FunctionVersion> version;
        Digest snapshot;
        bool report_excess = false;
        bool examined = false; // its snapshot was examined, or cannot be
        bool fetched = false;  // the chunks that it needs at once are on the disk, and `stored` keeps them there
        bool waited = false;   // for another process that has the state of its machine
        std::shared_ptr<store::SavedState> state{};
        std::unique_ptr<store::StoredSnapshot> stored{};
        std::optional<ComingPieces> later{};
    };
    static const std::string& tenant_of(const Start& start) { return start.version->facts().given->tenant; }
    void start_loop();
    void behind_loop();
    bool start_unsaved(const Start& start);
    void wait_for_state(Start& start);
    std::variant<Started, NotStarted> started(Start& start);
    void send_later(PieceSender& sender, const Start& start);
    enum class Bucket { unasked, asked };
    void fetch_loop(Bucket bucket);
    struct Assigned {
        const FunctionVersion::Facts& facts;
        const store::StoredSnapshot& snapshot;
        bool report_excess = false;
        const ComingPieces* later = nullptr;
    };
    FunctionProgram program_of(const Assigned& of);
    std::unique_ptr<FunctionProcess> process_for(const FunctionProgram& program);
    std::unique_ptr<PreparedMachine> take_prepared(const Start& start, int state);
    using Clock = std::chrono::steady_clock;
    Clock::time_point next_behind() const;
    unsigned end_lingering(Clock::time_point due); // the mutex is held
    void discard_locked(std::unique_ptr<FunctionProcess> process);
    // Of a machine that can be suspended: null while another process has it.
    std::shared_ptr<store::SavedState> claim_state(const FunctionVersion& version, int milliseconds) const;

    store::Store& store_;
    CacheService& cache_;
    StorageService& storages_;
    LogStore& logs_;
    JailPlans plans_;
    const Done done_;
    SpareProcesses spares_;
    UnsavedStates unsaved_;
    mutable std::mutex mutex_; // guards the following
    std::multiset<Digest> starting_from_;
    FairQueue<Start> to_start_, to_look_, to_fetch_, to_examine_;      // by tenant
    std::vector<std::unique_ptr<FunctionProcess>> discarded_;          // killed
    std::map<std::string, std::unique_ptr<PreparedMachine>> prepared_; // by FunctionVersion::state_id()
    std::condition_variable start_wanted_, look_wanted_, fetch_wanted_, behind_wanted_, ends_;
    std::uint64_t ahead_bytes_ = 0;
    bool saving_again_ = false;
    bool ending_ = false;
    std::thread starter_, behind_[2];
    std::vector<std::thread> fetchers_; // none without a bucket; one of them only looks what the disk has
};

} // namespace kvmserver::daemon
