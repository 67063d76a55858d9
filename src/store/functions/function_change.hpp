// One change of one function, rows and records together: all or nothing.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/store/functions/event.hpp"
#include "src/store/functions/function_record.hpp"
#include "src/store/store.hpp"

namespace kvmserver::store {

// The etag that the caller saw, or "" for a function that must not exist yet; nullopt: no condition.
using IfMatch = std::optional<std::string>;

// The constructor takes naming(), the index and a write transaction, and checks `if_match` (StaleEtag). Not
// thread-safe.
class FunctionChange {
public:
    enum class Missing { error, make }; // make: create a function that does not exist
    FunctionChange(Store& store, const std::string& name, const IfMatch& if_match, Missing missing = Missing::error);
    ~FunctionChange(); // rolls back what was not committed
    FunctionChange(const FunctionChange&) = delete;
    FunctionChange& operator=(const FunctionChange&) = delete;

    Database& database() { return *index_; }
    std::int64_t id() const { return id_; }

    void add(const VersionRecord& version);     // the row now, the record in commit()
    void replace(const VersionRecord& version); // changes its state and its snapshot
    void remove(std::uint64_t version);
    void take_routes(const std::vector<Route>& routes); // replaces all routes; throws RouteTaken
    void set_traffic(std::vector<Live> live);           // replaces it; throws BadValue, NotFound, Conflict
    void set_moved(const std::optional<Moved>& moved);  // throws BadValue

    // Records the event in the function's history. Returns the function's new record. Throws BadValue for the message.
    FunctionRecord commit(const Event& event);
    // For what nobody asked for: etags stay good, and the history does not tell it.
    FunctionRecord commit_unasked();
    // Removes the function with everything that belongs to it.
    void commit_removal();

private:
    FunctionRecord write_and_commit();
    void undo() noexcept;
    Store& store_;
    std::string name_;
    FileLock naming_;
    Store::Index index_;
    Transaction transaction_;
    std::int64_t id_ = 0;
    bool made_ = false, files_touched_ = false, done_ = false;
    std::vector<VersionRecord> put_;
    std::vector<std::uint64_t> removed_;
    std::vector<Route> routes_before_; // in a cluster, as is:
    std::vector<Digest> new_snapshots_;
};

// Makes a function's records match the index; removes them if the index has no such function. Returns one line for each
// change. The caller must hold naming() or sweeping().
std::vector<std::string> align_records(Folder& folder, const Database& database, const std::string& name);

} // namespace kvmserver::store
