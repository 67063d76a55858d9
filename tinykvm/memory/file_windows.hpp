// Files of the host in guest memory, for shared mappings. The guest uses the pages of the host's page cache directly,
// so all mappings, reads and writes of the file, in any process, see the same bytes.
//
// A file is mapped in *windows*: aligned parts of the file, each at one place of guest memory (GuestRam). When no place
// is left, the oldest window is evicted. A window that the current host call has used is never evicted, because the
// call may hold a pointer into it.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tinykvm/base/shared_fd.hpp"
#include "tinykvm/memory/guest_ram.hpp"

namespace tinykvm {

// A file that regions are populated from.
struct FileBacking {
    SharedFd fd; // empty: the file was not available when a snapshot was restored
    std::string name;
    bool writable = false; // shared mappings may be written to
    bool memory = false;   // a memfd: content of the machine, not of the host
    // Of the file when its pages were read into an image (kRegionFrozen only).
    std::uint64_t size = 0;
    std::int64_t mtime_ns = 0;
    std::shared_ptr<const void> origin = {}; // the handle that it was mapped through (machine/mapped_files.hpp)
};

// The windows of one machine.
class FileWindows {
public:
    static constexpr std::uint64_t kBytes = std::uint64_t{GuestRam::kWindowFrames} * kPageSize;

    explicit FileWindows(GuestRam& ram) : ram_(&ram) {}

    // Called before a window is evicted: must remove its pages from the page tables.
    using Leave = std::function<void(const FileBacking&, std::uint64_t offset)>;
    // The frame of the page at `offset` of a file, open as `fd`. Opens a window if there is none. Returns 0, with the
    // errno in `error`, when the page cannot be mapped.
    Frame frame(const std::shared_ptr<const FileBacking>& file, int fd, std::uint64_t offset, const Leave& leave,
                int& error);
    // The frame if there is a window for it, else 0.
    Frame find(const FileBacking& file, std::uint64_t offset) const;

    // Whether any part of the file has a window.
    bool has(const FileBacking& file) const;

    // A host call begins: pointers into windows that earlier calls got are no longer used.
    void begin_call() { ++call_; }
    // Closes the windows of a file that has no mapping left.
    void forget(const FileBacking& file);
    // Clone only: closes all windows but those that `keep` accepts, and drops the vCPUs' translations of the kept ones.
    void reset(const std::function<bool(const FileBacking&)>& keep);
    void clear();
    bool empty() const { return used_ == 0; }
    // For a trial run: changes stay in this machine.
    void make_private() { shared_ = false; }

private:
    struct Window {
        std::shared_ptr<const FileBacking> file; // null: free
        std::uint64_t offset = 0;
        std::uint64_t call = 0; // the last host call that used it
        bool touched = false;   // used since the last reset
    };
    void close(std::uint32_t window);
    // A free place, after an eviction if necessary; kMaxWindows when there is none.
    std::uint32_t place(const Leave& leave);

    GuestRam* ram_;
    std::vector<Window> windows_;
    std::uint32_t used_ = 0, next_ = 0;
    std::uint64_t call_ = 1;
    bool shared_ = true;
};

} // namespace tinykvm
