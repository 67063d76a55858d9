// Files in locks/ that say what a living process needs. The name says what; a lock on the file says that its
// owner lives, and goes with the process however that ends. No clock is involved.
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
    // The caller holds the sweep lock (shared), else a gc might find the mark before it is locked.
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

std::string import_mark(const std::string& id);  // an import, whose files are in tmp/<id>/
std::string snapshot_mark(const Digest& digest); // a snapshot that somebody reads or is about to name

struct Marks {
    std::vector<std::string> imports; // their ids
    std::vector<Digest> snapshots;    // sorted
    std::vector<std::string> dead;    // files in locks/ that nobody holds
};
// The caller holds the sweep lock (exclusive).
Marks read_marks(const Folder& folder, const FileLock& sweep);

} // namespace kvmserver::store
