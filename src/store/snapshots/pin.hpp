// Files in locks/ (marks) that say what a living process needs. The name says what is needed. A lock on the file says
// that its owner lives, and ends with the process however that dies. No clock is involved.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/common/digest.hpp"
#include "src/store/files/folder.hpp"
#include "src/store/files/lock.hpp"

namespace kvmserver::store {

class Pin {
public:
    // The caller must hold the sweep lock (shared). Otherwise a gc might find the mark before it is locked.
    Pin(std::shared_ptr<Folder> folder, std::string name, const FileLock& sweep);
    ~Pin();
    Pin(Pin&&) noexcept = default;
    Pin& operator=(Pin&&) = delete;
    const std::string& name() const { return name_; }

private:
    std::shared_ptr<Folder> folder_; // empty once moved from
    std::string name_;
    tinykvm::UniqueFd fd_;
};

std::string import_mark(const std::string& id);  // marks an import, whose files are in tmp/<id>/
std::string snapshot_mark(const Digest& digest); // marks a snapshot that is being read or is about to be named

struct Marks {
    std::vector<std::string> imports; // their ids
    std::vector<Digest> snapshots;    // sorted
    std::vector<std::string> orphans; // names of marks whose owner has died
};
// The caller must hold the sweep lock (exclusive).
Marks read_marks(const Folder& folder, const FileLock& sweep);

} // namespace kvmserver::store
