// All changes that the store makes in the file system go through this interface, so that tests can make any of them
// fail.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <sys/types.h>

namespace kvmserver::store {

// Thin wrappers of system calls: each returns what the call returns, or -errno. Paths are relative to the folder `at`.
// Any number of threads may use it. SQLite's own writes do not pass through it.
class FileLayer {
public:
    virtual ~FileLayer() = default;
    virtual int open(int at, const char* path, int flags, mode_t mode) = 0; // returns a descriptor
    // may write less than all
    virtual ssize_t write(int fd, std::span<const std::byte> bytes, std::uint64_t offset) = 0;
    virtual int fsync(int fd) = 0;
    virtual int rename(int at, const char* from, const char* to) = 0;
    virtual int link(int at, const char* from, const char* to) = 0;
    virtual int unlink(int at, const char* path) = 0;
    virtual int mkdir(int at, const char* path, mode_t mode) = 0;
    virtual int rmdir(int at, const char* path) = 0;
};

std::shared_ptr<FileLayer> real_files();

} // namespace kvmserver::store
