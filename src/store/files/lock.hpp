// flock(2) on the lock files of a store, released when the object goes or the process dies.
#pragma once
#include <optional>
#include <string>

#include "src/store/files/folder.hpp"

namespace kvmserver::store {

// Each lock has an open file of its own, so two threads exclude each other as two processes do. Lock order:
// index.lock, sweep.lock, an upload, the index's own mutex, SQLite's write lock.
class FileLock {
public:
    static FileLock shared(Folder& folder, const std::string& path);    // waits
    static FileLock exclusive(Folder& folder, const std::string& path); // waits
    static std::optional<FileLock> try_exclusive(Folder& folder, const std::string& path);
    // Waits at most that long.
    static std::optional<FileLock> exclusive_within(Folder& folder, const std::string& path, int milliseconds);
    // Whether nobody holds a lock on the file, which is left alone. False when it is not there.
    static bool nobody_holds(const Folder& folder, const std::string& path);

    FileLock(FileLock&&) = default;
    FileLock& operator=(FileLock&&) = delete;
    // Closing the file alone would not give the lock back: a process that is just being started has copies of all
    // descriptors for a moment.
    ~FileLock();

    int fd() const { return fd_.get(); }

private:
    explicit FileLock(tinykvm::UniqueFd fd) : fd_(std::move(fd)) {}
    tinykvm::UniqueFd fd_;
};

} // namespace kvmserver::store
