// Files of the host in guest memory, for shared mappings: the guest uses the pages of the host's page cache themselves,
// so every mapping, every read and write of the file, in whatever process, sees the same bytes.
//
// A file is mapped in *windows*, aligned parts of it, each at one place of the guest's memory (GuestRam). The least
// recently made one goes when there is no place left, but never one that the host call under way has used: it may hold
// a pointer.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tinykvm/base/shared_fd.hpp"
#include "tinykvm/memory/guest_ram.hpp"

namespace tinykvm {

// A file that regions are filled from.
struct FileBacking {
    SharedFd fd; // none: it could not be had where a snapshot was restored
    std::string name;
    bool writable = false; // shared mappings may be written to
    bool memory = false;   // a memfd: content of the machine, not of the host
    // When its pages were taken into an image (kRegionFrozen).
    std::uint64_t size = 0;
    std::int64_t mtime_ns = 0;
    std::shared_ptr<const void> origin = {}; // what the machine knows of it (its handle)
};

class FileWindows {
public:
    static constexpr std::uint64_t kBytes = std::uint64_t{GuestRam::kWindowFrames} * kPageSize;

    explicit FileWindows(GuestRam& ram) : ram_(&ram) {}

    // Called with a window that goes: its pages must leave the page tables.
    using Leave = std::function<void(const FileBacking&, std::uint64_t offset)>;
    // The frame of the page at `offset` of a file, open as `fd`. 0 and the errno in `error` when it cannot be mapped.
    Frame frame(const std::shared_ptr<const FileBacking>& file, int fd, std::uint64_t offset, const Leave& leave,
                int& error);
    // The frame if there is a window for it, else 0.
    Frame find(const FileBacking& file, std::uint64_t offset) const;

    // Whether any part of it has one.
    bool has(const FileBacking& file) const;

    // A host call begins: pointers into windows that earlier ones got are no longer used.
    void begin_call() { ++call_; }
    // No mapping of it is left.
    void forget(const FileBacking& file);
    // Of a clone: what remains for the next invocation are windows of `keep`, which no CPU has translations of any
    // more.
    void reset(const std::function<bool(const FileBacking&)>& keep);
    void clear();
    bool empty() const { return used_ == 0; }
    // Changes are for this machine alone (a trial).
    void make_private() { shared_ = false; }

private:
    struct Window {
        std::shared_ptr<const FileBacking> file; // null: free
        std::uint64_t offset = 0;
        std::uint64_t call = 0; // the last that used it
        bool touched = false;   // since the last reset
    };
    void close(std::uint32_t window);
    // A free place, or none: kMaxWindows.
    std::uint32_t place(const Leave& leave);

    GuestRam* ram_;
    std::vector<Window> windows_;
    std::uint32_t used_ = 0, next_ = 0;
    std::uint64_t call_ = 1;
    bool shared_ = true;
};

} // namespace tinykvm
