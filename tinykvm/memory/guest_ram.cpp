#include "tinykvm/memory/guest_ram.hpp"

#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/must_hold.hpp"
#include "tinykvm/base/zero.hpp"
#include "tinykvm/memory/huge_pages.hpp"
#include "tinykvm/memory/page_tables.hpp"

namespace tinykvm {
namespace {

// Slots grow with the memory, so that there are few of them and none is much larger than the memory in use. A slot
// costs the kernel memory in proportion to its size, most of all under shadow paging.
constexpr Frame kFirstSlotFrames = (32u << 20) / kPageSize;
constexpr Frame kCloneSlotFrames = (8u << 20) / kPageSize;
// Limit of tables that a clone may add. A leaf table maps 2 MiB of addresses.
constexpr std::uint32_t kMaxTables = 1 << 15, kTableSlotFrames = 256;
constexpr std::uint64_t kWindowBytes = std::uint64_t{GuestRam::kWindowFrames} * kPageSize;
constexpr std::uint64_t kAllWindows = kWindowBytes * GuestRam::kMaxWindows;
// An unused frame before the windows, so that no run of contiguous frames begins in memory and ends in a window.
constexpr std::uint32_t kFrameBetween = 1;

// KVM uses large mappings only if host and guest-physical addresses are aligned alike.
Mapping aligned_memory(std::uint64_t bytes, const char* what) { return Mapping::aligned(bytes, kHugePageBytes, what); }

void map_over(std::byte* at, std::uint64_t bytes, int sharing, int fd, const char* what) {
    if (bytes != 0 &&
        ::mmap(at, bytes, PROT_READ | PROT_WRITE, sharing | MAP_FIXED | MAP_NORESERVE, fd, 0) == MAP_FAILED)
        throw_errno(std::string("mmap ") + what);
}

} // namespace

GuestRam::GuestRam(kvm::Vm& vm, std::uint64_t max_bytes) : vm_(&vm), max_frames_(max_bytes / kPageSize) {}

GuestRam GuestRam::boot(kvm::Vm& vm, std::uint64_t max_bytes) {
    GuestRam ram(vm, max_bytes);
    ram.memfd_ = UniqueFd(::memfd_create("kvmserver-boot", MFD_CLOEXEC));
    if (!ram.memfd_)
        throw_errno("memfd_create boot memory");
    if (::ftruncate(ram.memfd_.get(), static_cast<off_t>(max_bytes)) < 0)
        throw_errno("ftruncate boot memory");
    // The windows are after the end of the memfd.
    ram.first_window_ = static_cast<Frame>(max_bytes / kPageSize) + kFrameBetween;
    ram.memory_ = aligned_memory(frame_address(ram.first_window_).value + kAllWindows, "boot memory");
    map_over(ram.memory_.data(), ram.memory_.size(), MAP_SHARED, ram.memfd_.get(), "boot memory");
    return ram;
}

GuestRam GuestRam::clone(kvm::Vm& vm, std::shared_ptr<const Image> image, std::uint64_t max_bytes,
                         const RequestArena& arena) {
    const std::uint64_t image_bytes = std::uint64_t{image->frames()} * kPageSize;
    const std::uint64_t arena_at = (image_bytes + kHugePageBytes - 1) & ~(kHugePageBytes - 1);
    must_hold(arena.bytes % kHugePageBytes == 0);
    max_bytes = std::max(max_bytes, arena.bytes != 0 ? arena_at + arena.bytes : image_bytes);
    GuestRam ram(vm, max_bytes);
    ram.first_table_ = static_cast<Frame>(max_bytes / kPageSize);
    ram.first_window_ = ram.first_table_ + kMaxTables + kFrameBetween;
    const std::uint64_t all_bytes = frame_address(ram.first_window_).value + kAllWindows;
    const char* const what = "request machine memory";
    if (arena.bytes != 0 || image->huge_bytes() != 0) {
        ram.memory_ = aligned_memory(all_bytes, what);
        map_over(ram.memory_.data(), image_bytes, MAP_PRIVATE, image->fd(), what);
    } else {
        ram.memory_ = Mapping::map_in_front(image_bytes, image->fd(), all_bytes, what);
    }
    ram.image_frames_ = ram.high_ = ram.slots_end_ = image->frames();
    ram.attachment_ = image->attach(ram.memory_.data());
    vm.set_slot(ram.slots_++, GuestPhys(0), image_bytes, ram.memory_.data());
    ram.image_ = std::move(image);
    if (ram.image_->large()) {
        if (ram.memory_.size() > LargePages::kAt.value)
            throw HostError(ENOMEM, "guest memory: large pages are in its place");
        ram.large_slot_ = ram.slots_++;
        ram.set_large_slot();
    }
    if (arena.bytes != 0)
        ram.add_arena(arena_at, arena);
    return ram;
}

// The arena has a slot of its own: where a slot ends, KVM uses no large mapping.
void GuestRam::add_arena(std::uint64_t at, const RequestArena& arena) {
    arena_first_ = frame_of(GuestPhys(at));
    arena_end_ = arena_first_ + static_cast<Frame>(arena.bytes / kPageSize);
    arena_pages_ = map_arena(host(GuestPhys(at)), arena);
    if (slots_end_ != arena_first_)
        vm_->set_slot(slots_++, frame_address(slots_end_), (arena_first_ - slots_end_) * kPageSize,
                      host(frame_address(slots_end_)));
    vm_->set_slot(slots_++, GuestPhys(at), arena.bytes, host(GuestPhys(at)));
    slots_end_ = arena_end_;
    kept_headroom_ = most_kept();
}

void GuestRam::set_large_slot() {
    const LargePages& large = *image_->large();
    vm_->set_slot(large_slot_, LargePages::kAt, large.count() * LargePages::kBytes, large.data(), KVM_MEM_READONLY);
}

// Removing the slot also drops KVM's own links between tables, which the MMU notifier does not reach.
void GuestRam::drop_large_translations() {
    vm_->remove_slot(large_slot_);
    set_large_slot();
}

std::uint64_t GuestRam::link(std::uint64_t entry) const {
    if (entry & pte::kLarge) {
        const LargePages* large = image_ ? image_->large() : nullptr;
        entry = large ? large->link(entry).value_or(0) : 0;
    }
    return (entry & pte::kPresent) && valid(pte::frame(entry)) ? entry : 0;
}

void GuestRam::share(Frame first, std::uint32_t count) {
    must_hold(image_ && first + count <= image_frames_);
    const auto at = static_cast<off_t>(frame_address(first).value);
    const std::size_t bytes = std::size_t{count} * kPageSize;
    if (::mmap(host(frame_address(first)), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
               image_->fd(), at) == MAP_FAILED)
        throw_errno("mmap image");
    shared_.resize(image_frames_);
    std::fill_n(shared_.begin() + first, count, true);
}

void GuestRam::grow_slots(Frame end) {
    while (slots_end_ < end) {
        const Frame minimum = image_frames_ ? kCloneSlotFrames : kFirstSlotFrames;
        const std::uint64_t want =
            std::max<std::uint64_t>({minimum, end - slots_end_, (slots_end_ - image_frames_) / 2});
        const std::uint64_t frames = std::min<std::uint64_t>(want, max_frames_ - slots_end_);
        const GuestPhys at = frame_address(slots_end_);
        vm_->set_slot(slots_++, at, frames * kPageSize, host(at));
        slots_end_ += static_cast<Frame>(frames);
    }
}

bool GuestRam::reserve_outside(std::uint64_t bytes) {
    const std::uint64_t frames = page_up(bytes) / kPageSize, most = max_frames_ - image_frames_;
    if (frames > most || in_use_ + tables_used_ > most - frames)
        return false;
    outside_ = frames;
    return true;
}

// Whether there is room for `frames` more, counting memory files and a clone's tables.
bool GuestRam::has_room(std::uint64_t frames) {
    const auto fits = [&] { return in_use_ + frames + outside_ + tables_used_ <= max_frames_ - image_frames_; };
    if (!fits() && outside_ != 0)
        outside_ = measure_outside_ ? page_up(measure_outside_()) / kPageSize : 0; // may have shrunk since
    return fits();
}

std::optional<Frame> GuestRam::allocate(std::uint32_t count) {
    must_hold(count > 0);
    if (!has_room(count))
        return std::nullopt;
    for (auto run = free_.begin(); run != free_.end(); ++run) {
        if (run->second < count)
            continue;
        const Frame first = run->first;
        const std::uint32_t rest = run->second - count;
        free_.erase(run);
        if (rest != 0)
            free_.emplace(first + count, rest);
        in_use_ += count;
        return first;
    }
    if (max_frames_ < count || high_ > max_frames_ - count)
        return std::nullopt;
    const Frame first = high_;
    grow_slots(first + count);
    high_ += count;
    in_use_ += count;
    return first;
}

std::optional<Frame> GuestRam::allocate_table() {
    if (!image_)
        return allocate(1);
    if (tables_ == kMaxTables || !use_table())
        return std::nullopt;
    if (tables_ == table_slots_used_ * kTableSlotFrames) {
        if (table_slots_used_ == table_slots_.size())
            table_slots_.push_back(slots_++);
        const GuestPhys at = frame_address(first_table_ + tables_);
        vm_->set_slot(table_slots_[table_slots_used_++], at, kTableSlotFrames * kPageSize, host(at));
    }
    return first_table_ + tables_++;
}

bool GuestRam::use_table() {
    if (!has_room(1))
        return false;
    ++tables_used_;
    return true;
}

void GuestRam::clear_tables() {
    tables_used_ = 0;
    if (::madvise(host(frame_address(first_table_)), tables_ * kPageSize, MADV_DONTNEED) < 0)
        throw_errno("madvise(MADV_DONTNEED) page tables");
}

bool GuestRam::renew_tables() {
    if (tables_ < kMaxTables / 2)
        return false;
    clear_tables();
    // Removing their slots makes KVM drop its shadow pages.
    for (; table_slots_used_ > 0; --table_slots_used_)
        vm_->remove_slot(table_slots_[table_slots_used_ - 1]);
    tables_ = 0;
    return true;
}

void GuestRam::release(Frame first, std::uint32_t count) {
    if (is_window(first)) {
        drop_translations(first, count);
        return;
    }
    must_hold(first + count <= high_);
    release_memory(first, count);
    if (first < image_frames_) {
        const std::uint32_t inside = std::min(count, image_frames_ - first);
        first += inside;
        count -= inside;
        if (count == 0)
            return;
    }
    in_use_ -= count;
    auto [at, fresh] = free_.emplace(first, count);
    must_hold(fresh);
    if (const auto next = std::next(at); next != free_.end() && at->first + at->second == next->first) {
        at->second += next->second;
        free_.erase(next);
    }
    if (at != free_.begin()) {
        const auto previous = std::prev(at);
        if (previous->first + previous->second == at->first) {
            previous->second += at->second;
            free_.erase(at);
        }
    }
}

void GuestRam::release_memory(Frame first, std::uint32_t count) {
    if (!image_) {
        if (::madvise(host(frame_address(first)), std::uint64_t{count} * kPageSize, MADV_REMOVE) < 0)
            throw_errno("madvise(MADV_REMOVE) guest memory");
        return;
    }
    const Frame end = first + count, begin_kept = std::clamp(arena_first_, first, end),
                end_kept = std::clamp(arena_end_, first, end);
    if (end_kept > begin_kept) { // to give back a part of a huge page would split it
        std::memset(host(frame_address(begin_kept)), 0, std::size_t{end_kept - begin_kept} * kPageSize);
        drop_translations(begin_kept, end_kept - begin_kept);
    }
    // Frames of the image get the image's content again, which is also what a reset needs.
    const auto give_back = [this](Frame from, Frame to) {
        if (from < to && ::madvise(host(frame_address(from)), std::uint64_t{to - from} * kPageSize, MADV_DONTNEED) < 0)
            throw_errno("madvise(MADV_DONTNEED) guest memory");
    };
    give_back(first, end_kept > begin_kept ? begin_kept : end);
    give_back(end_kept > begin_kept ? end_kept : end, end);
}

bool GuestRam::window_open(Frame f) const {
    const std::uint32_t window = (f - first_window_) / kWindowFrames;
    return window < window_prot_.size() && window_prot_[window] != kClosed;
}

int GuestRam::open_window(std::uint32_t window, int fd, std::uint64_t offset, int prot, bool shared) {
    must_hold(window < kMaxWindows);
    const GuestPhys at = frame_address(window_frame(window));
    if (::mmap(host(at), kWindowBytes, prot, (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_FIXED | MAP_NORESERVE, fd,
               static_cast<off_t>(offset)) == MAP_FAILED)
        return errno;
    if (window >= window_prot_.size()) {
        window_prot_.resize(window + 1, kClosed);
        window_slot_.resize(window + 1);
    }
    if (!window_slot_[window]) {
        vm_->set_slot(slots_++, at, kWindowBytes, host(at));
        window_slot_[window] = true;
    }
    window_prot_[window] = prot;
    return 0;
}

void GuestRam::close_window(std::uint32_t window) {
    if (::mmap(host(frame_address(window_frame(window))), kWindowBytes, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED)
        throw_errno("unmap a file from guest memory");
    window_prot_[window] = kClosed;
}

void GuestRam::drop_translations(Frame first, std::uint32_t count) {
    // In windows, restore the protection with which the file was mapped, and no more.
    while (count > 0 && is_window(first)) {
        const std::uint32_t window = (first - first_window_) / kWindowFrames;
        const std::uint32_t here = std::min(count, window_frame(window) + kWindowFrames - first);
        std::byte* at = host(frame_address(first));
        const std::uint64_t bytes = std::uint64_t{here} * kPageSize;
        if (window_open(first) &&
            (::mprotect(at, bytes, PROT_NONE) < 0 || ::mprotect(at, bytes, window_prot_[window]) < 0))
            throw_errno("mprotect a file in guest memory");
        first += here;
        count -= here;
    }
    if (count == 0)
        return;
    Frame end = first + count;
    if (in_arena(first)) // whole huge pages, or the kernel splits them
        first -= (first - arena_first_) % kHugePageFrames;
    if (in_arena(end))
        end += (arena_end_ - end) % kHugePageFrames;
    std::byte* at = host(frame_address(first));
    const std::uint64_t bytes = std::uint64_t{end - first} * kPageSize;
    if (::mprotect(at, bytes, PROT_READ) < 0 || ::mprotect(at, bytes, PROT_READ | PROT_WRITE) < 0)
        throw_errno("mprotect guest memory");
}

std::uint64_t GuestRam::fill_from_file(Frame first, int file, std::uint64_t offset, std::uint64_t bytes) {
    if (!memfd_ || ::lseek(memfd_.get(), static_cast<off_t>(frame_address(first).value), SEEK_SET) < 0)
        return 0;
    std::uint64_t done = 0;
    for (auto at = static_cast<off_t>(offset); done < bytes;) {
        const ssize_t n = ::sendfile(memfd_.get(), file, &at, bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += static_cast<std::uint64_t>(n);
    }
    return done;
}

std::uint64_t GuestRam::use_huge_pages(std::uint64_t most) {
    must_hold(!image_);
    return collapse(memory_.data(), std::min(most, frame_address(high_).value));
}

std::shared_ptr<Image> GuestRam::into_image() && {
    if (image_)
        return copied_image();
    const Frame frames = high_;
    if (::ftruncate(memfd_.get(), static_cast<off_t>(std::uint64_t{frames} * kPageSize)) < 0)
        throw_errno("ftruncate image");
    return std::make_shared<Image>(std::move(memfd_), frames);
}

// Frame numbers stay the same, so there is a hole between the memory and the tables.
std::shared_ptr<Image> GuestRam::copied_image() const {
    auto copy = Image::create(first_table_ + static_cast<std::uint32_t>(tables_));
    const auto put = [&](Frame first, Frame end) {
        std::span<std::byte> run; // pages that lie behind each other and are not zero, the last one is frame f - 1
        const auto write = [&](Frame behind) {
            if (!run.empty())
                copy->fill(behind - static_cast<Frame>(run.size() / kPageSize), run);
            run = {};
        };
        for (Frame f = first; f < end; ++f) {
            const std::span<std::byte> page = frame_bytes(f);
            const bool zero = is_zero(page);
            if (zero || page.data() != run.data() + run.size())
                write(f);
            if (!zero)
                run = run.empty() ? page : std::span(run.data(), run.size() + kPageSize);
        }
        write(end);
    };
    put(0, high_);
    put(first_table_, first_table_ + static_cast<Frame>(tables_));
    return copy;
}

std::uint32_t GuestRam::drop_headroom() {
    const std::uint32_t count = high_ - image_frames_;
    if (count == 0)
        return 0;
    const std::uint32_t kept = std::min(count, most_kept());
    std::memset(host(frame_address(image_frames_)), 0, std::size_t{kept} * kPageSize);
    drop_translations(image_frames_, kept);
    kept_headroom_ = std::max(kept_headroom_, kept);
    if (count > kept && ::madvise(host(frame_address(image_frames_ + kept)), std::uint64_t{count - kept} * kPageSize,
                                  MADV_DONTNEED) < 0)
        throw_errno("madvise(MADV_DONTNEED) guest memory");
    high_ = image_frames_;
    free_.clear();
    in_use_ = 0;
    outside_ = 0;
    return count;
}

void GuestRam::drop_kept_headroom() {
    if (arena_frames() != 0)
        return;
    if (kept_headroom_ != 0 &&
        ::madvise(host(frame_address(image_frames_)), std::uint64_t{kept_headroom_} * kPageSize, MADV_DONTNEED) < 0)
        throw_errno("madvise(MADV_DONTNEED) guest memory");
    kept_headroom_ = 0;
}

void GuestRam::prepare_headroom(std::uint32_t count) {
    count = static_cast<std::uint32_t>(std::min<std::uint64_t>({count, kMaxKeptHeadroom, max_frames_ - image_frames_}));
    if (count == 0 ||
        ::madvise(host(frame_address(image_frames_)), std::uint64_t{count} * kPageSize, kMadvPopulateWrite) < 0)
        return;
    grow_slots(image_frames_ + count);
    kept_headroom_ = std::max(kept_headroom_, count);
}

void GuestRam::set_limit(std::uint64_t max_bytes) {
    max_frames_ = std::min<std::uint64_t>(image_ ? first_table_ : first_window_ - kFrameBetween, max_bytes / kPageSize);
}

} // namespace tinykvm
