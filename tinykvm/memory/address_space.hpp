// The guest's virtual address space: an interval map of regions, populated on first touch a run of pages at a time, and
// the memory system calls on it. It is also the GuestMemory through which the host accesses the guest.
//
// System calls return a value >= 0 or -errno. In a clone, reset() undoes everything.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tinykvm/memory/code_stubs.hpp"
#include "tinykvm/memory/file_windows.hpp"
#include "tinykvm/memory/guest_memory.hpp"
#include "tinykvm/memory/page_tables.hpp"

namespace tinykvm {

enum RegionFlags : std::uint32_t {
    kRegionUser = 1,       // may be unmapped and changed by the program
    kRegionSupervisor = 2, // CPL 0 only
    kRegionWipeOnFork = 4, // MADV_WIPEONFORK
    kRegionShared = 8,     // MAP_SHARED of anonymous memory, or of a file, whose own pages it shows (FileWindows)
    kRegionFrozen = 16,    // with kRegionShared, in an image: shows a copy of the file until the file changes
    kRegionGrowsDown = 32, // MAP_GROWSDOWN
};

// Access to the machine's memory files (memfds).
struct MemoryFiles {
    // The descriptor of this machine's own copy of a file, or -errno.
    std::function<int(const FileBacking&)> own_fd;
    // Whether all memory files together may take this many bytes more.
    std::function<bool(std::uint64_t)> may_grow;
};

struct Region {
    std::uint64_t end = 0;
    std::uint32_t prot = 0; // PROT_READ | PROT_WRITE | PROT_EXEC
    std::uint32_t flags = kRegionUser;
    std::shared_ptr<const FileBacking> file;    // null: anonymous
    std::uint64_t file_offset = 0;              // of the region's first byte
    std::shared_ptr<const CodePatches> patches; // null: code is not patched
    std::string name;
};

enum class FaultOutcome {
    done,        // populated: retry the access
    not_mapped,  // SEGV_MAPERR
    not_allowed, // SEGV_ACCERR
    past_file,   // SIGBUS: beyond the end of the mapped file
    no_memory,   // over the machine's memory limit
};
enum class FaultAccess { read, write, execute };

class AddressSpace final : public GuestMemory {
public:
    using Regions = std::map<std::uint64_t, Region>;
    // Like Linux's vm.max_map_count. Regions take host memory that no limit of the machine counts.
    static constexpr std::size_t kMaxRegions = 65530;

    AddressSpace(GuestRam& ram, std::uint64_t max_bytes); // new and empty
    AddressSpace(GuestRam& ram, GuestPhys root, std::shared_ptr<const Regions> regions, std::uint64_t brk_begin,
                 std::uint64_t brk_end, std::uint64_t max_bytes); // a clone's: keeps a journal for reset()

    // --- set-up by the host ----------------------------------------------------------------------
    // Maps a fixed range, which must be free.
    void place(GuestVirt at, std::uint64_t bytes, std::uint32_t prot, std::uint32_t flags, std::string name,
               std::shared_ptr<const FileBacking> file = nullptr, std::uint64_t file_offset = 0);
    // Populates a range and writes `bytes` to it, whatever its protection. Throws HostError.
    void fill(GuestVirt at, std::span<const std::byte> bytes);
    // Populates [at, at+bytes). Throws HostError.
    void populate(GuestVirt at, std::uint64_t bytes);
    // The highest run of `bytes` free user addresses below the top of the mmap area; 0 when there is none.
    std::uint64_t find_free(std::uint64_t bytes) const;
    // From now on code is patched when it is mapped: instructions that leave the machine lead to the guest kernel
    // instead (memory/code_sites.hpp).
    void patch_code(const StubEntries& entries) { stub_entries_ = entries; }
    static constexpr const char* kStubsName = "[stubs]"; // of regions with stubs
    void set_brk(std::uint64_t begin) { brk_begin_ = brk_end_ = begin; }
    void set_memory_files(MemoryFiles files) { memory_files_ = std::move(files); }
    // For a trial run: writes to mapped files stay in this machine.
    void keep_files_as_they_are() {
        windows_.make_private();
        trial_ = true;
    }

    // --- system calls ----------------------------------------------------------------------------
    std::int64_t mmap(std::uint64_t at, std::uint64_t bytes, std::uint32_t prot, std::uint32_t flags,
                      std::shared_ptr<const FileBacking> file, std::uint64_t offset);
    // Frees the memory in [at, at+bytes) of layout::kFileArea, where the guest kernel keeps its own files.
    std::int64_t drop_own_pages(std::uint64_t at, std::uint64_t bytes);
    std::int64_t munmap(std::uint64_t at, std::uint64_t bytes);
    std::int64_t mprotect(std::uint64_t at, std::uint64_t bytes, std::uint32_t prot);
    std::int64_t mremap(std::uint64_t at, std::uint64_t old_bytes, std::uint64_t new_bytes, std::uint32_t flags,
                        std::uint64_t new_at);
    std::int64_t madvise(std::uint64_t at, std::uint64_t bytes, int advice);
    std::int64_t brk(std::uint64_t end);
    std::int64_t mincore(std::uint64_t at, std::uint64_t bytes, GuestVirt vector);
    // Whether the range holds memory that came from brk, even if it was moved since.
    bool holds_heap(std::uint64_t at, std::uint64_t bytes) const;
    std::int64_t msync(std::uint64_t at, std::uint64_t bytes, std::uint32_t flags);
    // mlock and munlock: as far as a program can tell, nothing is ever paged out.
    std::int64_t mlock(std::uint64_t at, std::uint64_t bytes);

    // --- faults and access -----------------------------------------------------------------------
    FaultOutcome fault(GuestVirt at, FaultAccess access);
    bool gather(GuestVirt at, std::uint64_t length, Access access, std::vector<iovec>& out) override;
    bool copy_out(std::byte* to, const iovec& run) override;
    bool copy_in(const iovec& run, const std::byte* from) override;
    // A host call begins: host ranges that earlier calls gathered are no longer used.
    void begin_call() { windows_.begin_call(); }
    // Call this when a vCPU found no page where the page tables have one: removes entries for pages that mapped
    // files no longer have. False when there are none.
    bool drop_lost_pages();
    // A descriptor that may change this file was opened: its frozen regions show the file itself from now on.
    void file_opened_for_writing(int fd);
    // Pages of a memory file may have been freed: unmaps it, so that its pages are counted when they are touched again.
    void memory_file_cut(int fd);
    // Frozen regions whose files have changed show the files themselves from now on.
    void follow_files();

    // --- for debuggers ---------------------------------------------------------------------------
    // Writes whatever the protection, to a private copy of the pages: neither an image nor a file changes. False when
    // the range is not mapped, shows a file's own pages, or no frames are left.
    bool poke(GuestVirt at, std::span<const std::byte> bytes);
    // Restores the file's bytes in all code, so that a debugger sees and changes what the program consists of. False
    // when no frames are left.
    bool undo_all_patches();
    bool is_stub(std::uint64_t at) const {
        const auto region = region_of(at);
        return region != regions_.end() && region->second.name == kStubsName;
    }

    // --- image, clone, reset ---------------------------------------------------------------------
    // Reads in all file content that is not populated yet, so that the memory no longer depends on files. Throws
    // UserError when it does not fit.
    void populate_files();
    // Call this before populate_files(). Shared mappings of files that this program writes to will show the file
    // itself in every clone; the others are frozen. `written`: whether a descriptor that may change the file (compared
    // by fstat) is open.
    void settle_files(const std::function<bool(const FileBacking&)>& written);
    // Calls fn for every shared mapping of a file that is not frozen; fn may replace the backing.
    void for_each_mapped_file(const std::function<void(std::shared_ptr<const FileBacking>&)>& fn);
    // Gives frames to writable memory near pages in use. Clones of the image then touch it without a fault. Untouched
    // frames cost nothing: they are holes of the image.
    void populate_nearby();
    const Regions& regions() const { return regions_; }
    PageTables& tables() { return tables_; }
    const PageTables& tables() const { return tables_; }
    std::uint64_t brk_begin() const { return brk_begin_; }
    std::uint64_t brk_end() const { return brk_end_; }
    std::uint64_t address_space_bytes() const { return mapped_bytes_; }
    // Clone only: restores regions and page tables. Returns whether page tables were changed. Does not restore the
    // content of pages (PageReset).
    bool reset();
    // Zeroes MADV_WIPEONFORK memory, as for a new process.
    void wipe_on_fork();
    bool has_wipe_on_fork() const;
    // Frames that the host wrote to since the last call, if track_host_writes() is on.
    std::vector<Frame> take_host_dirty() { return std::exchange(host_dirty_, {}); }
    // Frames of read-only pages that became writable since the last call.
    std::vector<Frame> take_made_writable() { return std::exchange(made_writable_, {}); }
    // Records that the host wrote to a range by pointer.
    void note_host_write(GuestVirt at, std::uint64_t bytes);
    void track_host_writes(bool on) { track_host_writes_ = on; }
    bool out_of_memory() const { return out_of_memory_; }

private:
    static constexpr std::uint32_t kProtMask = 7; // PROT_READ, PROT_WRITE, PROT_EXEC
    // Whether two neighbours can become one region.
    static bool mergeable(const Region& a, const Region& b, std::uint64_t a_begin);

    Regions::iterator region_of(std::uint64_t at);
    Regions::const_iterator region_of(std::uint64_t at) const;
    void split(std::uint64_t at);
    void insert(std::uint64_t begin, Region region);
    void populate_small(std::uint64_t begin, std::uint64_t end);
    void drop_pages(std::uint64_t begin, std::uint64_t end);
    // Finds patches for a file's code that is about to be mapped at [at, at+bytes), and maps their stubs below it. Null
    // when there are none.
    std::shared_ptr<const CodePatches> patch_code(std::uint64_t at, std::uint64_t bytes, const Region& region);
    // Restores the file's bytes in code that is about to move or become writable; false when no frames are left.
    bool undo_patches(std::uint64_t at, std::uint64_t end);
    // munmap of a validated range. Keeps the stubs of the code in it.
    std::int64_t unmap(std::uint64_t at, std::uint64_t end);
    // Unmaps what is left of the stubs of code that was unmapped.
    void drop_stubs(const CodePatches& patches);
    FaultOutcome populate_around(Regions::iterator region, std::uint64_t at, std::uint64_t block_bytes);
    bool fill_from_file(const Region& region, std::uint64_t region_begin, std::uint64_t at, Frame first,
                        std::uint32_t count);
    void make_present(GuestVirt at, std::uint64_t entry);
    // Whether its pages are the file's own.
    static bool live(const Region& region) {
        return (region.flags & kRegionShared) && region.file && !(region.flags & kRegionFrozen);
    }
    // Whether it counts against the limit of address space. Reserved memory (PROT_NONE) does not.
    static bool counts(const Region& region) { return (region.flags & kRegionUser) && region.prot != 0; }
    int file_fd(const FileBacking& file) const;
    bool append_runs(GuestVirt at, std::uint64_t length, Access access, std::vector<iovec>& out);
    FaultOutcome populate_shared(Regions::iterator region, std::uint64_t at);
    // The frame of a file's page, or 0 with the errno in `error`.
    Frame file_frame(const std::shared_ptr<const FileBacking>& file, std::uint64_t offset, int& error);
    void leave_window(const FileBacking& file, std::uint64_t offset);
    void thaw(Regions::iterator region);
    bool grow_down(std::uint64_t at);
    std::uint64_t find_free_low(std::uint64_t bytes) const;
    // -ENOMEM when a page of [at, end) is not mapped, else 0.
    std::int64_t all_mapped(std::uint64_t at, std::uint64_t end) const;
    std::int64_t punch_holes(std::uint64_t at, std::uint64_t end);
    bool user_range(std::uint64_t at, std::uint64_t bytes) const;
    std::uint64_t leaf_flags(const Region& region) const;
    void changed() { regions_changed_ = true; }
    // Gives each page in [at, end) that uses a frame of the image itself (GuestRam::share) a private copy. False when
    // no frames are left.
    bool own_frames(std::uint64_t at, std::uint64_t end);
    // Adds a frame to a list for the next reset. Removes duplicates as the list grows, because a program may repeat the
    // same changes in a machine that is never reset.
    static void note_frame(std::vector<Frame>& frames, Frame frame);

    GuestRam* ram_;
    FileWindows windows_;
    MemoryFiles memory_files_;
    std::vector<std::uint64_t> frozen_;          // clone only: where the image's frozen regions begin
    std::vector<const FileBacking*> kept_files_; // clone only: files whose windows outlive a reset
    UniqueFd copy_pipe_[2];                      // for copy_out and copy_in
    bool trial_ = false;
    PageTables tables_;
    Regions regions_;
    std::shared_ptr<const Regions> pristine_; // clone only
    bool regions_changed_ = false;
    bool pristine_wipes_ = false; // it has MADV_WIPEONFORK memory
    std::uint64_t brk_begin_ = 0, brk_end_ = 0, pristine_brk_end_ = 0;
    std::uint64_t max_bytes_;
    StubEntries stub_entries_; // 0: code is not patched
    std::uint64_t mapped_bytes_ = 0, pristine_mapped_ = 0;
    std::vector<Frame> host_dirty_;
    std::vector<Frame> made_writable_;
    std::vector<std::pair<Frame, std::uint32_t>> moved_; // by mremap, since the last reset
    bool track_host_writes_ = false;
    bool out_of_memory_ = false;
};

} // namespace tinykvm
