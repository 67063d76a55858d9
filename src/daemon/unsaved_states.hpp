// Machines that were to be suspended and whose state could not be saved, because the disk is full, for example. Their
// processes keep them in memory until they are saved after all, or until requests come and they go on.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "src/daemon/function_process.hpp"
#include "src/daemon/function_version.hpp"
#include "src/daemon/log_store.hpp"
#include "src/store/snapshots/saved_state.hpp"
#include "src/store/snapshots/stored_snapshot.hpp"

namespace kvmserver::daemon {

// A process that has said `unsaved` (src/protocol/worker_messages.hpp), with what belongs to it.
struct UnsavedState {
    std::shared_ptr<const FunctionVersion> version;
    std::unique_ptr<store::StoredSnapshot> snapshot; // holds the snapshot in the store meanwhile
    std::unique_ptr<FunctionProcess> process;
    std::shared_ptr<store::SavedState> state;
    std::uint64_t state_bytes = 0; // the most that it may take
};

// Thread-safe.
class UnsavedStates {
public:
    explicit UnsavedStates(LogStore& logs) : logs_(logs) {}

    void add(UnsavedState one);
    // The one of this version's machine, which then belongs to the caller. Nothing if there is none, and while it is
    // being saved.
    std::optional<UnsavedState> take(const FunctionVersion& version);
    bool can_take(const FunctionVersion& version) const;
    bool has(const FunctionVersion& version) const; // also while it is being saved
    // Tries to save it, which ends its process. Waits for that. False if it could not be; true if there is none.
    bool save(const FunctionVersion& version);
    void end(); // tries each a last time, for 20 s in all, and tells what is lost
    // Those that fail again are due later and later.
    void save_those_due();
    std::chrono::steady_clock::time_point next_try() const; // when one is due; far away if there is none
    // Ends its process and forgets its state: nobody will want it.
    void drop(const FunctionVersion& version);
    bool empty() const;

    struct Listed {
        std::shared_ptr<const FunctionVersion> version;
        pid_t pid;
    };
    std::vector<Listed> list() const;

private:
    struct Entry {
        Entry(UnsavedState with, pid_t of) : one(std::move(with)), pid(of) {}
        UnsavedState one;
        const pid_t pid;
        std::mutex saving;    // held by whoever saves it, or takes it out
        bool dropped = false; // guarded by the other mutex, as are:
        std::chrono::steady_clock::time_point due;
        std::chrono::seconds pause{}; // before it was due
    };
    using Place = std::shared_ptr<Entry>;
    Place find(const FunctionVersion& version) const;
    using Time = std::chrono::steady_clock::time_point;
    void save_those(Time due, Time until);
    bool save(const std::string& id, const Place& entry);
    bool ask(Entry& entry);
    bool is_in(const std::string& id, const Place& entry) const; // the mutex is held
    void note(const Entry& entry, std::string text);

    LogStore& logs_;
    mutable std::mutex mutex_;             // guards the map; not held while a state is being saved
    std::map<std::string, Place> entries_; // by FunctionVersion::state_id()
};

} // namespace kvmserver::daemon
