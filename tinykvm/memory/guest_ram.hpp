// Guest-physical memory: frames of 4 KiB numbered from 0, kept compact, in KVM slots that are added as it
// grows.
//
// Two kinds. A *boot* memory is one shared memfd, which becomes the image. A *clone* maps an image
// copy-on-write and has anonymous memory after it. Only one thread uses a GuestRam at a time.
//
// Behind everything else there are *windows*: places where parts of the host's files are mapped for the guest
// (FileWindows). Their bytes are the file's, in the host's page cache: no image has them, no reset copies them.
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

namespace tinykvm {

using Frame = std::uint32_t;
inline constexpr GuestPhys frame_address(Frame f) { return GuestPhys(std::uint64_t{f} * kPageSize); }
inline constexpr Frame frame_of(GuestPhys at) { return static_cast<Frame>(at.value / kPageSize); }

class GuestRam {
public:
    // An empty memory that may grow to `max_bytes`.
    static GuestRam boot(kvm::Vm& vm, std::uint64_t max_bytes);
    // A copy-on-write clone of `image` that may grow to `max_bytes` in all.
    static GuestRam clone(kvm::Vm& vm, std::shared_ptr<const Image> image, std::uint64_t max_bytes);

    // First frame of `count` contiguous zeroed frames; nullopt when the limit is reached.
    std::optional<Frame> allocate(std::uint32_t count);
    // A zeroed frame for page tables; nullopt when there is none. In a clone such frames lie apart and never
    // become anything else: KVM's shadow paging does not see that a table which the host edits is one no
    // more, and would go on taking it for one.
    std::optional<Frame> allocate_table();
    // Clone only: one that was handed out before is in use again since clear_tables(). False: the limit is reached.
    bool use_table();
    // Clone only: the tables are zero again and take no memory, and remain handed out.
    void clear_tables();
    // Clone only: takes all tables back, if so many have been handed out that there might soon be none; makes
    // KVM forget all that it derived from them. Returns whether it did.
    bool renew_tables();
    // Gives frames back: their content is dropped, and no vCPU can reach them through stale translations.
    // A clone does not hand frames of its image out again.
    void release(Frame first, std::uint32_t count);
    // Clone only, before its first run: frames that nothing will write to are used in the image itself
    // instead of being mapped copy-on-write. Whoever makes a page of theirs writable must give it another
    // frame first.
    void share(Frame first, std::uint32_t count);
    bool shared(Frame frame) const { return frame < shared_.size() && shared_[frame]; }
    // Makes every vCPU look at the guest page tables again before it uses these frames. KVM does not watch
    // guest page tables that are edited from outside; changing the host mapping underneath makes it drop what
    // it derived from them.
    void drop_translations(Frame first, std::uint32_t count);
    // The same for all large pages, and for all that KVM derived from entries that mapped one.
    void drop_large_translations();
    // The link to a table that an upper entry stands for: itself, or what the large page that it maps is in place of. 0
    // when it is no sound link.
    std::uint64_t link(std::uint64_t entry) const;

    std::byte* host(GuestPhys at) const { return memory_.data() + at.value; }
    std::span<std::byte> frame_bytes(Frame f) const { return {host(frame_address(f)), kPageSize}; }
    bool valid(Frame f) const {
        return f < high_ || (f >= first_table_ && f - first_table_ < tables_) || (is_window(f) && window_open(f));
    }

    static constexpr std::uint32_t kWindowFrames = (8u << 20) / kPageSize, kMaxWindows = 512;
    bool is_window(Frame f) const { return f >= first_window_ && f - first_window_ < kWindowFrames * kMaxWindows; }
    // Whether a pointer that host() gave is in a window: its page may be gone any time, with the file's end.
    bool in_window(const void* at) const {
        return at >= host(frame_address(first_window_)) && at < memory_.data() + memory_.size();
    }
    Frame window_frame(std::uint32_t window) const { return first_window_ + window * kWindowFrames; }
    // Maps a file's bytes from `offset` on as a window. 0, or the errno of mmap. Throws HostError when there are no
    // more slots.
    int open_window(std::uint32_t window, int fd, std::uint64_t offset, int prot, bool shared);
    // Nothing the guest knew of it remains. It must not be in its page tables any more.
    void close_window(std::uint32_t window);

    Frame high() const { return high_; }                 // frames below it have been handed out at some time
    std::uint32_t tables() const { return tables_; }     // that lie apart: allocate_table()
    Frame image_frames() const { return image_frames_; } // 0 for a boot memory
    std::uint64_t bytes_in_use() const { return in_use_ * kPageSize; }
    const Image* image() const { return image_.get(); }
    const std::shared_ptr<const Image>& shared_image() const { return image_; }
    const std::map<Frame, std::uint32_t>& free_runs() const { return free_; }

    // What is there now becomes an image; this memory must not be used afterwards. A clone's, all of whose
    // image must be loaded, is copied, and has holes: see renumber().
    std::shared_ptr<Image> into_image() &&;
    // Clone only: forgets every frame handed out since the clone was made, dropping their content. Returns
    // how many. The memory of the first ones stays, zeroed: to have it anew costs a fault a page, and KVM maps the
    // neighbours of a page along with it only where there are some.
    std::uint32_t drop_headroom();
    // Clone only: gives that memory back.
    void drop_kept_headroom();
    // Clone only: the first so many frames that will be handed out have memory from now on, up to what would be kept.
    void prepare_headroom(std::uint32_t count);
    std::uint32_t kept_headroom() const { return kept_headroom_; }
    static constexpr std::uint32_t kMaxKeptHeadroom = 128; // frames
    void set_limit(std::uint64_t max_bytes);

    // Memory of the machine's that lies elsewhere counts against the same limit: `look` says how many bytes that are.
    void count_outside(std::function<std::uint64_t()> look) { look_outside_ = std::move(look); }
    // Whether there is room for so much of it; allocate() leaves this much from now on.
    bool reserve_outside(std::uint64_t bytes);

private:
    GuestRam(kvm::Vm& vm, std::uint64_t max_bytes);
    void grow_slots(Frame end);
    bool has_room(std::uint64_t frames);
    bool window_open(Frame f) const;
    void set_large_slot();
    std::shared_ptr<Image> copied_image() const;

    kvm::Vm* vm_;
    Mapping memory_;
    UniqueFd memfd_; // boot only
    std::shared_ptr<const Image> image_;
    Image::Attachment attachment_; // of memory_ to the image: ends before both
    Frame image_frames_ = 0;
    Frame high_ = 0;
    Frame slots_end_ = 0;
    std::uint32_t slots_ = 0;
    std::uint32_t large_slot_ = 0; // clone only, of an image that has large pages
    std::uint64_t max_frames_;
    Frame first_table_ = ~Frame{0}; // clone only: behind the largest memory
    std::uint32_t tables_ = 0;      // handed out
    std::uint32_t tables_used_ = 0; // since they were cleared: these take memory
    std::vector<std::uint32_t> table_slots_;
    std::uint32_t table_slots_used_ = 0;
    Frame first_window_ = 0;        // behind everything else
    std::vector<int> window_prot_;  // of the open ones; kClosed
    std::vector<bool> window_slot_; // those that have one
    static constexpr int kClosed = -1;
    std::uint64_t in_use_ = 0;
    std::function<std::uint64_t()> look_outside_;
    std::uint64_t outside_ = 0;       // frames: at least what is there outside
    std::uint32_t kept_headroom_ = 0; // frames behind the image that have memory of their own
    std::vector<bool> shared_;
    std::map<Frame, std::uint32_t> free_; // first -> count, coalesced
};

} // namespace tinykvm
