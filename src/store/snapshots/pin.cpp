#include "src/store/snapshots/pin.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>

#include "src/common/random_hex.hpp"
#include "src/store/errors.hpp"

namespace kvmserver::store {

namespace {

constexpr std::string_view kImport = "import-", kSnapshot = "snapshot-";

std::string in_locks(const std::string& name) { return std::string(kLocks) + "/" + name; }

} // namespace

Pin::Pin(std::shared_ptr<Folder> folder, std::string name, const FileLock&)
    : folder_(std::move(folder)), name_(std::move(name)) {
    fd_ = folder_->create(in_locks(name_));
    if (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0)
        throw HostError(errno, "lock " + folder_->full(in_locks(name_)));
}

Pin::~Pin() {
    if (!folder_)
        return;
    try {
        folder_->remove(in_locks(name_));
    } catch (...) { // gc removes the file
    }
}

std::string import_mark(const std::string& id) { return std::string(kImport) + id; }

std::string snapshot_mark(const Digest& digest) { return std::string(kSnapshot) + digest.hex() + "-" + random_hex(8); }

Marks read_marks(const Folder& folder, const FileLock&) {
    Marks marks;
    for (const std::string& name : folder.list(kLocks)) {
        if (FileLock::nobody_holds(folder, in_locks(name))) {
            marks.orphans.push_back(name);
        } else if (name.starts_with(kImport)) {
            marks.imports.push_back(name.substr(kImport.size()));
        } else if (name.starts_with(kSnapshot)) {
            if (const auto digest = Digest::from_hex(std::string_view(name).substr(kSnapshot.size(), 64)))
                marks.snapshots.push_back(*digest);
        }
    }
    std::sort(marks.snapshots.begin(), marks.snapshots.end());
    return marks;
}

} // namespace kvmserver::store
