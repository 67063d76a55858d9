// flock(2) on the lock files of a store. Locks are released by the destructor, or when the process dies.
#pragma once
#include <optional>
#include <string>

#include "src/store/files/folder.hpp"

namespace kvmserver::store {

// Each lock has its own open file description, so that two threads exclude each other as two processes do. Lock order:
// index.lock, sweep.lock, an upload, the index's mutex, SQLite's write lock.
class FileLock {
public:
    static FileLock shared(Folder& folder, const std::string& path);    // blocks
    static FileLock exclusive(Folder& folder, const std::string& path); // blocks
    static std::optional<FileLock> try_exclusive(Folder& folder, const std::string& path);
    // Blocks for at most `milliseconds`; nullopt on timeout.
    static std::optional<FileLock> exclusive_within(Folder& folder, const std::string& path, int milliseconds);
    // Whether nobody holds a lock on the file. Does not modify it. False if it does not exist.
    static bool nobody_holds(const Folder& folder, const std::string& path);

    FileLock(FileLock&&) = default;
    FileLock& operator=(FileLock&&) = delete;
    // Unlocks explicitly. Closing alone would not release the lock, because a process that is being started briefly has
    // copies of all descriptors.
    ~FileLock();

    int fd() const { return fd_.get(); }

private:
    explicit FileLock(tinykvm::UniqueFd fd) : fd_(std::move(fd)) {}
    tinykvm::UniqueFd fd_;
};

} // namespace kvmserver::store
