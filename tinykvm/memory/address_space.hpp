// The guest's virtual address space: an interval map of regions, populated on first touch a run of pages at a
// time, and the memory system calls on it. Also the GuestMemory through which the host reads and writes.
//
// System calls return a value >= 0 or -errno. In a clone everything is undone by reset().
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
    kRegionShared = 8,     // MAP_SHARED: of a file whose pages are its own (FileWindows), or of anonymous memory
    kRegionFrozen = 16,    // of an image: a shared file's pages are as when it was taken, until the file changes
    kRegionGrowsDown = 32, // MAP_GROWSDOWN
};

// Where the bytes of memory files are.
struct MemoryFiles {
    // The descriptor of this machine's own copy, or -errno.
    std::function<int(const FileBacking&)> own_fd;
    // Whether all of them together may take so many bytes more.
    std::function<bool(std::uint64_t)> may_grow;
};

struct Region {
    std::uint64_t end = 0;
    std::uint32_t prot = 0; // PROT_READ | PROT_WRITE | PROT_EXEC
    std::uint32_t flags = kRegionUser;
    std::shared_ptr<const FileBacking> file;    // null: anonymous
    std::uint64_t file_offset = 0;              // of the region's first byte
    std::shared_ptr<const CodePatches> patches; // of code that leads to stubs
    std::string name;
};

enum class FaultOutcome {
    done,        // populated: go on
    not_mapped,  // SEGV_MAPERR
    not_allowed, // SEGV_ACCERR
    past_file,   // SIGBUS: beyond the end of the mapped file
    no_memory,   // over the machine's memory limit
};
enum class FaultAccess { read, write, execute };

class AddressSpace final : public GuestMemory {
public:
    using Regions = std::map<std::uint64_t, Region>;
    // As Linux's vm.max_map_count: regions take memory of the host that no limit of the machine counts.
    static constexpr std::size_t kMaxRegions = 65530;

    AddressSpace(GuestRam& ram, std::uint64_t max_bytes); // a new one
    AddressSpace(GuestRam& ram, GuestPhys root, std::shared_ptr<const Regions> regions, std::uint64_t brk_begin,
                 std::uint64_t brk_end, std::uint64_t max_bytes); // of a clone: journals

    // --- set-up by the host ----------------------------------------------------------------------
    // Maps a fixed range that must be free.
    void place(GuestVirt at, std::uint64_t bytes, std::uint32_t prot, std::uint32_t flags, std::string name,
               std::shared_ptr<const FileBacking> file = nullptr, std::uint64_t file_offset = 0);
    // Populates a range at once and writes `bytes` to it whatever its protection.
    void fill(GuestVirt at, std::span<const std::byte> bytes);
    // Populates [at, at+bytes) at once.
    void populate(GuestVirt at, std::uint64_t bytes);
    // A run of `bytes` free user addresses below the mmap area's top; 0 when there is none.
    std::uint64_t find_free(std::uint64_t bytes) const;
    // From now on what leaves the machine in mapped code (memory/code_sites.hpp) is led to the guest kernel.
    void patch_code(const StubEntries& entries) { stub_entries_ = entries; }
    void set_brk(std::uint64_t begin) { brk_begin_ = brk_end_ = begin; }
    void set_memory_files(MemoryFiles files) { memory_files_ = std::move(files); }
    // A trial: what is written to files through mappings is not.
    void keep_files_as_they_are() {
        windows_.make_private();
        trial_ = true;
    }

    // --- system calls ----------------------------------------------------------------------------
    std::int64_t mmap(std::uint64_t at, std::uint64_t bytes, std::uint32_t prot, std::uint32_t flags,
                      std::shared_ptr<const FileBacking> file, std::uint64_t offset);
    // Gives the memory of the guest kernel's own files back: [at, at+bytes) of layout::kFileArea.
    std::int64_t drop_own_pages(std::uint64_t at, std::uint64_t bytes);
    std::int64_t munmap(std::uint64_t at, std::uint64_t bytes);
    std::int64_t mprotect(std::uint64_t at, std::uint64_t bytes, std::uint32_t prot);
    std::int64_t mremap(std::uint64_t at, std::uint64_t old_bytes, std::uint64_t new_bytes, std::uint32_t flags,
                        std::uint64_t new_at);
    std::int64_t madvise(std::uint64_t at, std::uint64_t bytes, int advice);
    std::int64_t brk(std::uint64_t end);
    std::int64_t mincore(std::uint64_t at, std::uint64_t bytes, GuestVirt vector);
    // Whether memory that came from brk is there, wherever it was moved to.
    bool holds_heap(std::uint64_t at, std::uint64_t bytes) const;
    std::int64_t msync(std::uint64_t at, std::uint64_t bytes, std::uint32_t flags);
    // mlock, munlock: nothing is ever paged out as far as a program can tell.
    std::int64_t mlock(std::uint64_t at, std::uint64_t bytes);

    // --- faults and access -----------------------------------------------------------------------
    FaultOutcome fault(GuestVirt at, FaultAccess access);
    bool gather(GuestVirt at, std::uint64_t length, Access access, std::vector<iovec>& out) override;
    bool copy_out(std::byte* to, const iovec& run) override;
    bool copy_in(const iovec& run, const std::byte* from) override;
    // The guest called: what earlier calls gathered is no longer used.
    void begin_call() { windows_.begin_call(); }
    // A vCPU found no page where the tables say there is one: takes those out that files no longer have. False: all are
    // there.
    bool drop_lost_pages();
    // A descriptor that may change this file was opened: its frozen pages follow it from now on.
    void file_opened_for_writing(int fd);
    // Pages of a memory file may have been taken away: they are touched, and so counted, anew.
    void memory_file_cut(int fd);
    // Frozen pages of files that have changed follow them.
    void follow_files();

    // --- image, clone, reset ---------------------------------------------------------------------
    // Reads in everything that files still owe, so that the memory stands alone.
    void populate_files();
    // Before that: shared mappings of files that this program writes to will show the file itself in every clone; the
    // others are frozen. `written`: whether a descriptor that may change the file (as fstat tells) is open.
    void settle_files(const std::function<bool(const FileBacking&)>& written);
    // Every shared mapping of a file that is not frozen; fn may put another backing in its place.
    void for_each_mapped_file(const std::function<void(std::shared_ptr<const FileBacking>&)>& fn);
    // Gives frames to writable memory near what is in use already: clones of the image then touch it without a
    // fault, and untouched frames cost nothing (they are holes of the image).
    void populate_nearby();
    const Regions& regions() const { return regions_; }
    PageTables& tables() { return tables_; }
    const PageTables& tables() const { return tables_; }
    std::uint64_t brk_begin() const { return brk_begin_; }
    std::uint64_t brk_end() const { return brk_end_; }
    std::uint64_t address_space_bytes() const { return mapped_bytes_; }
    // Clone: puts regions and page tables back. True when translations were changed (the caller's other copies
    // of guest memory follow by themselves).
    bool reset();
    // Wipes what MADV_WIPEONFORK promises of a new process.
    void wipe_on_fork();
    bool has_wipe_on_fork() const;
    // Frames the host wrote to since the last take (for the dirty-bit reset).
    std::vector<Frame> take_host_dirty() { return std::exchange(host_dirty_, {}); }
    // Frames of read-only pages that became writable since the last take (working-set reset).
    std::vector<Frame> take_made_writable() { return std::exchange(made_writable_, {}); }
    void note_host_write(GuestVirt at, std::uint64_t bytes);
    void track_host_writes(bool on) { track_host_writes_ = on; }
    bool out_of_memory() const { return out_of_memory_; }

private:
    static constexpr std::uint32_t kProtMask = 7; // PROT_READ, PROT_WRITE, PROT_EXEC
    // Two neighbours that could be one.
    static bool mergeable(const Region& a, const Region& b, std::uint64_t a_begin);

    Regions::iterator region_of(std::uint64_t at);
    Regions::const_iterator region_of(std::uint64_t at) const;
    void split(std::uint64_t at);
    void insert(std::uint64_t begin, Region region);
    void populate_small(std::uint64_t begin, std::uint64_t end);
    void drop_pages(std::uint64_t begin, std::uint64_t end);
    // Patches for a file's code that is about to be mapped at [at, at+bytes), their stubs in place below it; null for
    // none.
    std::shared_ptr<const CodePatches> patch_code(std::uint64_t at, std::uint64_t bytes, const Region& region);
    // Puts the file's own bytes back in code that moves or may be written to; false when no frames are left.
    bool undo_patches(std::uint64_t at, std::uint64_t end);
    // munmap of a sound range, without the stubs of the code in it.
    std::int64_t unmap(std::uint64_t at, std::uint64_t end);
    // Unmaps what is still there of the stubs of code that is gone.
    void drop_stubs(const CodePatches& patches);
    FaultOutcome populate_around(Regions::iterator region, std::uint64_t at, std::uint64_t most);
    bool fill_from_file(const Region& region, std::uint64_t region_begin, std::uint64_t at, Frame first,
                        std::uint32_t count);
    void make_present(GuestVirt at, std::uint64_t entry);
    // Its pages are the file's own.
    static bool live(const Region& region) {
        return (region.flags & kRegionShared) && region.file && !(region.flags & kRegionFrozen);
    }
    // Counts against the limit of address space: what is only reserved does not.
    static bool counts(const Region& region) { return (region.flags & kRegionUser) && region.prot != 0; }
    int file_fd(const FileBacking& file) const;
    bool append_runs(GuestVirt at, std::uint64_t length, Access access, std::vector<iovec>& out);
    FaultOutcome populate_shared(Regions::iterator region, std::uint64_t at);
    // The frame of a file's page, or 0 and the errno.
    Frame file_frame(const std::shared_ptr<const FileBacking>& file, std::uint64_t offset, int& error);
    void leave_window(const FileBacking& file, std::uint64_t offset);
    void thaw(Regions::iterator region);
    bool grow_down(std::uint64_t at);
    std::uint64_t find_free_low(std::uint64_t bytes) const;
    // -ENOMEM where a page of [at, end) is not mapped.
    std::int64_t all_mapped(std::uint64_t at, std::uint64_t end) const;
    std::int64_t punch_holes(std::uint64_t at, std::uint64_t end);
    bool user_range(std::uint64_t at, std::uint64_t bytes) const;
    std::uint64_t leaf_flags(const Region& region) const;
    void changed() { regions_changed_ = true; }
    // Frames for the next reset. A machine may never be reset, and a program may do the same all day: each is kept
    // once. Gives the pages in [at, end) that use the image's own frames copies of these; false when no frames are
    // left.
    bool own_frames(std::uint64_t at, std::uint64_t end);
    static void note_frame(std::vector<Frame>& frames, Frame frame);

    GuestRam* ram_;
    FileWindows windows_;
    MemoryFiles memory_files_;
    std::vector<std::uint64_t> frozen_;          // clone only: where the image's frozen regions begin
    std::vector<const FileBacking*> kept_files_; // clone only: whose windows outlive a reset
    UniqueFd copy_pipe_[2];                      // of copy_out and copy_in
    bool trial_ = false;
    PageTables tables_;
    Regions regions_;
    std::shared_ptr<const Regions> pristine_; // clone only
    bool regions_changed_ = false;
    std::uint64_t brk_begin_ = 0, brk_end_ = 0, pristine_brk_end_ = 0;
    std::uint64_t max_bytes_;
    StubEntries stub_entries_; // none: code stays as it is
    std::uint64_t mapped_bytes_ = 0, pristine_mapped_ = 0;
    std::vector<Frame> host_dirty_;
    std::vector<Frame> made_writable_;
    std::vector<std::pair<Frame, std::uint32_t>> moved_; // by mremap, since the last reset
    bool track_host_writes_ = false;
    bool out_of_memory_ = false;
};

} // namespace tinykvm
