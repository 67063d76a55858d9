// Guest-physical memory: frames of 4 KiB, numbered from 0 and kept compact, in KVM slots that are added as it grows.
//
// There are two kinds. A *boot* memory is one shared memfd, which becomes the image. A *clone* maps an image
// copy-on-write, followed by anonymous memory. Only one thread may use a GuestRam at a time.
//
// After everything else come *windows*: places where parts of host files are mapped for the guest (FileWindows). Their
// bytes are in the host's page cache. Images do not contain them, and resets do not copy them.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tinykvm/base/guest_addr.hpp"
#include "tinykvm/base/mapping.hpp"
#include "tinykvm/kvm/kvm.hpp"
#include "tinykvm/memory/image.hpp"
#include "tinykvm/memory/request_arena.hpp"

namespace tinykvm {

using Frame = std::uint32_t;
inline constexpr GuestPhys frame_address(Frame f) { return GuestPhys(std::uint64_t{f} * kPageSize); }
inline constexpr Frame frame_of(GuestPhys at) { return static_cast<Frame>(at.value / kPageSize); }

class GuestRam {
public:
    // An empty memory that may grow to `max_bytes`.
    static GuestRam boot(kvm::Vm& vm, std::uint64_t max_bytes);
    // A copy-on-write clone of `image` that may grow to `max_bytes` in all. An arena begins at the first whole huge
    // page after the image. Together they may be larger than max_bytes.
    static GuestRam clone(kvm::Vm& vm, std::shared_ptr<const Image> image, std::uint64_t max_bytes,
                          const RequestArena& arena = {});

    // First frame of `count` contiguous zeroed frames; nullopt when the limit is reached.
    std::optional<Frame> allocate(std::uint32_t count);
    // A zeroed frame for a page table; nullopt when the limit is reached. In a clone these frames lie apart and are
    // never used for anything else: KVM's shadow paging does not notice when a table that the host edits stops being a
    // table, and would keep treating it as one.
    std::optional<Frame> allocate_table();
    // Clone only: counts a table that is used again after clear_tables(). False when the limit is reached.
    bool use_table();
    // Clone only: zeroes the tables and frees their memory. They remain handed out.
    void clear_tables();
    // Clone only: when the tables may soon run out, takes all of them back and makes KVM forget everything that it
    // derived from them. Returns whether it did.
    bool renew_tables();
    // Frees frames: their content is dropped, and no vCPU can reach them by stale translations. A clone does not hand
    // out frames of its image again. Those of an arena keep their memory, zeroed.
    void release(Frame first, std::uint32_t count);
    // Clone only, before its first run: uses frames of the image itself instead of mapping them copy-on-write. Nothing
    // may write to them. Before a page that uses one is made writable, it must get another frame.
    void share(Frame first, std::uint32_t count);
    bool shared(Frame frame) const { return frame < shared_.size() && shared_[frame]; }
    // Makes every vCPU walk the guest page tables again before it uses these frames. KVM does not notice when the host
    // edits guest page tables. A change of the host mapping underneath makes it drop what it derived from them.
    void drop_translations(Frame first, std::uint32_t count);
    // The same for all large pages and for everything that KVM derived from entries that mapped one.
    void drop_large_translations();
    // The link to a table in an upper-level entry: the entry itself, or the link that its large page stands in for. 0
    // when it is not a valid link.
    std::uint64_t link(std::uint64_t entry) const;

    std::byte* host(GuestPhys at) const { return memory_.data() + at.value; }
    std::span<std::byte> frame_bytes(Frame f) const { return {host(frame_address(f)), kPageSize}; }
    // Whether there is memory to access: the frame was handed out at some time, is a table, or is in an open window.
    bool valid(Frame f) const {
        return f < high_ || (f >= first_table_ && f - first_table_ < tables_) || (is_window(f) && window_open(f));
    }

    static constexpr std::uint32_t kWindowFrames = (8u << 20) / kPageSize, kMaxWindows = 512;
    bool is_window(Frame f) const { return f >= first_window_ && f - first_window_ < kWindowFrames * kMaxWindows; }
    // Whether a pointer from host() is in a window. Its page may disappear at any time, when the file is truncated.
    bool in_window(const void* at) const {
        return at >= host(frame_address(first_window_)) && at < memory_.data() + memory_.size();
    }
    Frame window_frame(std::uint32_t window) const { return first_window_ + window * kWindowFrames; }
    // Maps a file's bytes from `offset` on as a window. Returns 0 or the errno of mmap. Throws HostError when there are
    // no more slots.
    int open_window(std::uint32_t window, int fd, std::uint64_t offset, int prot, bool shared);
    // Unmaps a window. vCPUs keep no translations of it. It must not be in the guest's page tables any more.
    void close_window(std::uint32_t window);

    Frame high() const { return high_; }                 // frames below it have been handed out at some time
    std::uint32_t tables() const { return tables_; }     // number of table frames that lie apart: allocate_table()
    Frame image_frames() const { return image_frames_; } // 0 for a boot memory
    std::uint64_t bytes_in_use() const { return in_use_ * kPageSize; }
    const Image* image() const { return image_.get(); }
    const std::shared_ptr<const Image>& shared_image() const { return image_; }
    const std::map<Frame, std::uint32_t>& free_runs() const { return free_; }

    // Boot memory only: copies bytes of a file into frames without a fault for each page, and without mapping them.
    // Returns how many; less than `bytes` at the end of the file, and where it does not work (0).
    std::uint64_t fill_from_file(Frame first, int file, std::uint64_t offset, std::uint64_t bytes);

    // Boot memory only: moves its first `most` bytes, or what was handed out of them, into huge pages of the host.
    // Returns how many bytes are in such pages.
    std::uint64_t use_huge_pages(std::uint64_t most);
    // Turns the content into an image. This memory must not be used afterwards. The memory of a clone is copied, and
    // the image has holes (see renumber()); all of the clone's own image must be loaded.
    std::shared_ptr<Image> into_image() &&;
    // Clone only: takes back every frame handed out since the clone was made, and drops their content. Returns how
    // many. The first kMaxKeptHeadroom of them keep their memory, zeroed: new memory costs a fault per page, and KVM
    // maps the neighbours of a page along with it only if they are there. With an arena, all up to its end keep theirs.
    std::uint32_t drop_headroom();
    // Clone only: frees the memory that drop_headroom() and prepare_headroom() keep, unless there is an arena.
    void drop_kept_headroom();
    // Clone only: populates the next `count` frames that will be handed out, at most kMaxKeptHeadroom.
    void prepare_headroom(std::uint32_t count);
    std::uint32_t kept_headroom() const { return kept_headroom_; }
    std::uint32_t arena_frames() const { return arena_end_ - arena_first_; }
    ArenaPages arena_pages() const { return arena_pages_; } // when there is an arena
    static constexpr std::uint32_t kMaxKeptHeadroom = 128;  // frames
    void set_limit(std::uint64_t max_bytes);

    // Counts memory of the machine that lies elsewhere against the same limit. `look` returns its size in bytes.
    void count_outside(std::function<std::uint64_t()> measure) { measure_outside_ = std::move(measure); }
    // Whether there is room for `bytes` of such memory in all. If so, allocate() leaves that much from now on.
    bool reserve_outside(std::uint64_t bytes);

private:
    GuestRam(kvm::Vm& vm, std::uint64_t max_bytes);
    void grow_slots(Frame end);
    bool has_room(std::uint64_t frames);
    bool window_open(Frame f) const;
    void set_large_slot();
    void add_arena(std::uint64_t at, const RequestArena& arena);
    std::shared_ptr<Image> copied_image() const;
    bool in_arena(Frame f) const { return f >= arena_first_ && f < arena_end_; }
    std::uint32_t most_kept() const { return arena_frames() != 0 ? arena_end_ - image_frames_ : kMaxKeptHeadroom; }
    void release_memory(Frame first, std::uint32_t count);

    kvm::Vm* vm_;
    Mapping memory_;
    UniqueFd memfd_; // boot only
    std::shared_ptr<const Image> image_;
    Image::Attachment attachment_; // of memory_ to the image; destroyed before both
    Frame image_frames_ = 0;
    Frame arena_first_ = 0, arena_end_ = 0; // equal: there is none
    ArenaPages arena_pages_ = ArenaPages::ordinary;
    Frame high_ = 0;
    Frame slots_end_ = 0;
    std::uint32_t slots_ = 0;
    std::uint32_t large_slot_ = 0; // clone only, of an image that has large pages
    std::uint64_t max_frames_;
    Frame first_table_ = ~Frame{0}; // clone only: after the largest possible memory
    std::uint32_t tables_ = 0;      // number handed out
    std::uint32_t tables_used_ = 0; // number used since they were cleared: these take memory
    std::vector<std::uint32_t> table_slots_;
    std::uint32_t table_slots_used_ = 0;
    Frame first_window_ = 0;        // after everything else
    std::vector<int> window_prot_;  // by window; kClosed when it is not open
    std::vector<bool> window_slot_; // by window: whether it has a slot
    static constexpr int kClosed = -1;
    std::uint64_t in_use_ = 0;
    std::function<std::uint64_t()> measure_outside_;
    std::uint64_t outside_ = 0;       // upper bound of the memory elsewhere, in frames
    std::uint32_t kept_headroom_ = 0; // frames after the image that keep their memory
    std::vector<bool> shared_;
    std::map<Frame, std::uint32_t> free_; // first -> count, coalesced
};

} // namespace tinykvm
