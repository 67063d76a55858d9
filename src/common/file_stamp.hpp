// Tells whether a file still is what it was.
#pragma once
#include <cstdint>

#include <sys/stat.h>

namespace kvmserver {

// Every write() to a file changes its time of change (ctime), which no program can set. Of writes through a shared
// mapping only the first to a page does, until the kernel has written the page back.
struct FileStamp {
    std::uint64_t device = 0, inode = 0, bytes = 0;
    std::int64_t seconds = 0, nanoseconds = 0; // of its last change

    static FileStamp of(const struct stat& file);
    bool operator==(const FileStamp&) const = default;
    // Whether a write from now on is sure to change it: that takes a moment, as the time is that of a tick of the
    // kernel, or a multiple of 1 or 2 s on some file systems.
    bool settled() const;
};

} // namespace kvmserver
