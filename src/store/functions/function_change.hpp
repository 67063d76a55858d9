// One change of one function: rows and records together, all or nothing.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/store/functions/function_record.hpp"
#include "src/store/store.hpp"

namespace kvmserver::store {

// The etag that the caller saw, or "" for "it must not exist yet"; nothing: whatever it is.
using IfMatch = std::optional<std::string>;

class FunctionChange {
public:
    enum class Missing { error, make }; // make: a function that is not there yet
    FunctionChange(Store& store, const std::string& name, const IfMatch& if_match, Missing missing = Missing::error);
    ~FunctionChange(); // undoes what was not committed
    FunctionChange(const FunctionChange&) = delete;
    FunctionChange& operator=(const FunctionChange&) = delete;

    Database& database() { return *index_; }
    std::int64_t id() const { return id_; }

    void add(const VersionRecord& version);     // rows now, record with commit()
    void replace(const VersionRecord& version); // its state
    void remove(std::uint64_t version);
    void take_routes(const std::vector<Route>& routes); // instead of those it has; throws RouteTaken
    void set_traffic(std::vector<Live> live);           // instead of what it was; throws BadValue, NotFound, Conflict

    // Revision + 1; returns what the function is now.
    FunctionRecord commit();
    // The function goes, with all that belongs to it.
    void commit_removal();

private:
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
};

// Makes the records of a function what the index says, or removes them when it knows no such function. Says
// what it did, a line for each. The caller is naming() or sweeping().
std::vector<std::string> align_records(Folder& folder, const Database& database, const std::string& name);

} // namespace kvmserver::store
