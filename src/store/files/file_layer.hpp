// Everything that the store changes in the file system goes through here, so that tests can make any of it
// fail.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <sys/types.h>

namespace kvmserver::store {

// Thin names for the system calls: each returns what the call returns, or -errno. Paths are relative to the
// folder `at`. To be used by any number of threads. (SQLite writes its own files; it is not seen here.)
class FileLayer {
public:
    virtual ~FileLayer() = default;
    virtual int open(int at, const char* path, int flags, mode_t mode) = 0;                    // an fd
    virtual ssize_t write(int fd, std::span<const std::byte> bytes, std::uint64_t offset) = 0; // may be short
    virtual int fsync(int fd) = 0;
    virtual int rename(int at, const char* from, const char* to) = 0;
    virtual int link(int at, const char* from, const char* to) = 0;
    virtual int unlink(int at, const char* path) = 0;
    virtual int mkdir(int at, const char* path, mode_t mode) = 0;
    virtual int rmdir(int at, const char* path) = 0;
};

std::shared_ptr<FileLayer> real_files();

} // namespace kvmserver::store
