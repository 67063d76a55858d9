// Rows from records: of a whole index that is lost, or of single rows.
#pragma once
#include <string>
#include <vector>

#include "src/store/files/folder.hpp"
#include "src/store/functions/function_record.hpp"
#include "src/store/index/database.hpp"
#include "src/store/report.hpp"
#include "src/store/snapshots/snapshot_record.hpp"

namespace kvmserver::store {

// Works within a transaction of the caller. What cannot be restored is a finding, and the next thing is
// tried.
class Restorer {
public:
    Restorer(const Folder& folder, Database& database, Findings& findings)
        : folder_(folder), database_(database), findings_(findings) {}

    void restore_all();
    // Whether it is in the index now.
    bool restore_snapshot(const std::string& file); // of snapshots/
    bool restore_function(const std::string& name); // with all its versions
    bool restore_version(const std::string& name, const std::string& file, std::int64_t function);
    void restore_settings();
    // Functions that came back with less than their records say: these are out of date now.
    const std::vector<std::string>& reduced() const { return reduced_; }

private:
    template <class Action>
    bool attempt(const std::string& path, const Action& action);
    bool broken(const std::string& path, const std::string& why);
    FunctionRecord read_function(const std::string& name);
    void settle_details(FunctionRecord& function);
    const Folder& folder_;
    Database& database_;
    Findings& findings_;
    std::vector<std::string> reduced_;
};

// The record's text. Throws RecordError when there is none.
std::string read_record(const Folder& folder, const std::string& path);

} // namespace kvmserver::store
