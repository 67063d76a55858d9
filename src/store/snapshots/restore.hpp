// Restores rows from records: those of a whole lost index, or single ones.
#pragma once
#include <string>
#include <vector>

#include "src/store/files/folder.hpp"
#include "src/store/functions/function_record.hpp"
#include "src/store/index/database.hpp"
#include "src/store/report.hpp"
#include "src/store/snapshots/snapshot_record.hpp"

namespace kvmserver::store {

// Works within the caller's transaction. An entry that cannot be restored becomes a finding, and the next one is tried.
class Restorer {
public:
    Restorer(const Folder& folder, Database& database, Findings& findings)
        : folder_(folder), database_(database), findings_(findings) {}

    void restore_all();
    // These return whether the entry is in the index now.
    bool restore_snapshot(const std::string& file); // `file`: name in snapshots/
    bool restore_function(const std::string& name); // with all its versions
    bool restore_version(const std::string& name, const std::string& file, std::int64_t function);
    void restore_settings();
    // Functions that were restored only in part, so that their records are out of date now.
    const std::vector<std::string>& reduced() const { return reduced_; }

private:
    template <class Action>
    bool attempt(const std::string& path, const Action& action);
    bool broken(const std::string& path, const std::string& why);
    FunctionRecord read_function(const std::string& name);
    void restore_traffic_and_routes(FunctionRecord& function);
    const Folder& folder_;
    Database& database_;
    Findings& findings_;
    std::vector<std::string> reduced_;
};

// Reads a record file. Throws RecordError when it does not exist.
std::string read_record(const Folder& folder, const std::string& path);

} // namespace kvmserver::store
