#include "tinykvm/memory/address_space.hpp"

#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "tinykvm/abi/layout.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/must_hold.hpp"

namespace tinykvm {

namespace {
constexpr const char* kHeapName = "[heap]";
}

bool AddressSpace::mergeable(const Region& a, const Region& b, std::uint64_t a_begin) {
    if (a.prot != b.prot || a.flags != b.flags || a.file != b.file || a.name != b.name || a.patches != b.patches)
        return false;
    return !a.file || a.file_offset + (a.end - a_begin) == b.file_offset;
}

AddressSpace::AddressSpace(GuestRam& ram, std::uint64_t max_bytes)
    : ram_(&ram), windows_(ram), tables_(ram), max_bytes_(max_bytes) {}

AddressSpace::AddressSpace(GuestRam& ram, GuestPhys root, std::shared_ptr<const Regions> regions,
                           std::uint64_t brk_begin, std::uint64_t brk_end, std::uint64_t max_bytes)
    : ram_(&ram), windows_(ram), tables_(ram, root), regions_(*regions), pristine_(std::move(regions)),
      brk_begin_(brk_begin), brk_end_(brk_end), pristine_brk_end_(brk_end), max_bytes_(max_bytes) {
    for (const auto& [begin, region] : regions_) {
        if (counts(region))
            mapped_bytes_ += region.end - begin;
        pristine_wipes_ |= (region.flags & kRegionWipeOnFork) != 0;
        if ((region.flags & kRegionFrozen) && region.file)
            frozen_.push_back(begin);
        if (live(region) && !region.file->memory)
            kept_files_.push_back(region.file.get());
    }
    pristine_mapped_ = mapped_bytes_;
    tables_.start_journal();
}

AddressSpace::Regions::iterator AddressSpace::region_of(std::uint64_t at) {
    auto next = regions_.upper_bound(at);
    if (next == regions_.begin())
        return regions_.end();
    const auto here = std::prev(next);
    return at < here->second.end ? here : regions_.end();
}

AddressSpace::Regions::const_iterator AddressSpace::region_of(std::uint64_t at) const {
    return const_cast<AddressSpace*>(this)->region_of(at);
}

void AddressSpace::note_frame(std::vector<Frame>& frames, Frame frame) {
    if (!frames.empty() && frames.back() == frame)
        return;
    if (frames.size() == frames.capacity() && frames.size() >= 4096) {
        std::sort(frames.begin(), frames.end());
        frames.erase(std::unique(frames.begin(), frames.end()), frames.end());
        if (frames.size() > frames.capacity() / 2)
            frames.reserve(frames.capacity() * 2);
    }
    frames.push_back(frame);
}

void AddressSpace::split(std::uint64_t at) {
    const auto here = region_of(at);
    if (here == regions_.end() || here->first == at)
        return;
    Region upper = here->second;
    if (upper.file)
        upper.file_offset += at - here->first;
    here->second.end = at;
    regions_.emplace(at, std::move(upper));
}

void AddressSpace::insert(std::uint64_t begin, Region region) {
    changed();
    if (counts(region))
        mapped_bytes_ += region.end - begin;
    auto [here, fresh] = regions_.emplace(begin, std::move(region));
    must_hold(fresh);
    if (const auto next = std::next(here); next != regions_.end() && here->second.end == next->first &&
                                           mergeable(here->second, next->second, here->first)) {
        here->second.end = next->second.end;
        regions_.erase(next);
    }
    if (here != regions_.begin()) {
        const auto previous = std::prev(here);
        if (previous->second.end == here->first && mergeable(previous->second, here->second, previous->first)) {
            previous->second.end = here->second.end;
            regions_.erase(here);
        }
    }
}

void AddressSpace::place(GuestVirt at, std::uint64_t bytes, std::uint32_t prot, std::uint32_t flags, std::string name,
                         std::shared_ptr<const FileBacking> file, std::uint64_t file_offset) {
    Region region;
    region.end = at.value + page_up(bytes);
    region.prot = prot;
    region.flags = flags;
    region.name = std::move(name);
    region.file = std::move(file);
    region.file_offset = file_offset;
    insert(at.value, std::move(region));
}

std::uint64_t AddressSpace::find_free(std::uint64_t bytes) const {
    std::uint64_t top = layout::kMmapTop;
    auto it = regions_.lower_bound(top);
    while (true) {
        const std::uint64_t below = it == regions_.begin() ? layout::kUserMin : std::prev(it)->second.end;
        if (below <= top && top - below >= bytes)
            return top - bytes;
        if (it == regions_.begin())
            return 0;
        --it;
        top = std::min(top, it->first);
        if (top < layout::kUserMin + bytes)
            return 0;
    }
}

// For MAP_32BIT: the lowest free run from 1 GiB up to 2 GiB (arch/x86/kernel/sys_x86_64.c, find_start_end).
std::uint64_t AddressSpace::find_free_low(std::uint64_t bytes) const {
    constexpr std::uint64_t kBegin = 0x4000'0000, kEnd = 0x8000'0000;
    std::uint64_t at = kBegin;
    if (const auto here = region_of(at); here != regions_.end())
        at = here->second.end;
    for (auto next = regions_.lower_bound(at); at <= kEnd && kEnd - at >= bytes;
         at = std::max(at, next->second.end), ++next)
        if (next == regions_.end() || next->first >= at + bytes)
            return at;
    return 0;
}

bool AddressSpace::user_range(std::uint64_t at, std::uint64_t bytes) const {
    return (at & (kPageSize - 1)) == 0 && bytes != 0 && bytes <= layout::kUserMax && at <= layout::kUserMax - bytes;
}

void AddressSpace::drop_pages(std::uint64_t begin, std::uint64_t end) {
    Frame first = 0;
    std::uint32_t count = 0;
    std::vector<std::pair<Frame, std::uint32_t>> runs;
    tables_.update(GuestVirt(begin), GuestVirt(end), [&](GuestVirt, std::uint64_t entry) -> std::uint64_t {
        const Frame f = pte::frame(entry);
        if (count != 0 && f == first + count) {
            ++count;
        } else {
            if (count != 0)
                runs.emplace_back(first, count);
            first = f;
            count = 1;
        }
        return 0;
    });
    if (count != 0)
        runs.emplace_back(first, count);
    for (const auto& [f, n] : runs)
        ram_->release(f, n);
}

std::int64_t AddressSpace::mmap(std::uint64_t at, std::uint64_t bytes, std::uint32_t prot, std::uint32_t flags,
                                std::shared_ptr<const FileBacking> file, std::uint64_t offset) {
    if (bytes == 0 || bytes > layout::kUserMax)
        return bytes == 0 ? -EINVAL : -ENOMEM;
    bytes = page_up(bytes);
    if ((offset & (kPageSize - 1)) != 0 || (prot & ~kProtMask) != 0)
        return -EINVAL;
    const bool fixed = (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) != 0;
    if (fixed) {
        if (!user_range(at, bytes))
            return (at & (kPageSize - 1)) != 0 ? -EINVAL : -ENOMEM;
        if (at < layout::kUserMin)
            return -EPERM;
        if (flags & MAP_FIXED_NOREPLACE) {
            const auto next = regions_.lower_bound(at);
            if (region_of(at) != regions_.end() || (next != regions_.end() && next->first < at + bytes))
                return -EEXIST;
        }
    }
    if ((prot != 0 && mapped_bytes_ + bytes > max_bytes_) || regions_.size() + 2 > kMaxRegions)
        return -ENOMEM;
    const bool shared = (flags & MAP_TYPE) != MAP_PRIVATE;
    if (file) {
        if (offset > std::numeric_limits<std::int64_t>::max() - bytes)
            return -EOVERFLOW;
        if (shared && (prot & PROT_WRITE) && !file->writable)
            return -EACCES;
        // Report now, not at the first touch, that the file cannot be mapped.
        if (int error = 0; shared && file_frame(file, offset, error) == 0)
            return -error;
    }
    const auto refuse = [&](std::int64_t error) {
        if (file && shared)
            windows_.forget(*file);
        return error;
    };
    if (!fixed && (flags & MAP_32BIT)) {
        at = find_free_low(bytes);
        if (at == 0)
            return refuse(-ENOMEM);
    } else if (!fixed) {
        const std::uint64_t hint = page_down(at);
        const auto next = regions_.lower_bound(hint);
        const bool free_hint = hint >= layout::kUserMin && hint < layout::kMmapTop &&
                               bytes <= layout::kMmapTop - hint && region_of(hint) == regions_.end() &&
                               (next == regions_.end() || next->first >= hint + bytes);
        at = free_hint ? hint : find_free(bytes);
        if (at == 0)
            return refuse(-ENOMEM);
    } else {
        const std::int64_t result = unmap(at, at + bytes);
        if (result < 0)
            return refuse(result);
    }
    Region region;
    region.end = at + bytes;
    region.prot = prot;
    region.flags = kRegionUser | (shared ? kRegionShared : 0u) | ((flags & MAP_GROWSDOWN) ? kRegionGrowsDown : 0u);
    if (file)
        region.name = file->name;
    region.file = std::move(file);
    region.file_offset = region.file ? offset : 0;
    region.patches = patch_code(at, bytes, region);
    insert(at, std::move(region));
    populate_small(at, at + bytes);
    if (flags & MAP_POPULATE)
        for (std::uint64_t page = at; page < at + bytes; page += kPageSize)
            if (fault(GuestVirt(page), FaultAccess::read) != FaultOutcome::done)
                break;
    return static_cast<std::int64_t>(at);
}

// Memory that is mapped in small pieces is about to be used. Giving it frames now saves the exit of its first fault;
// frames cost nothing until they are touched.
void AddressSpace::populate_small(std::uint64_t begin, std::uint64_t end) {
    constexpr std::uint64_t kSmall = 256 << 10;
    const auto region = region_of(begin);
    if (end - begin > kSmall || region->second.file || !(region->second.prot & PROT_WRITE))
        return;
    for (std::uint64_t page = begin; page < std::min(end, region->second.end); page += kPageSize)
        if (!pte::mapped(tables_.get(GuestVirt(page))) && populate_around(region, page, kSmall) != FaultOutcome::done) {
            out_of_memory_ = false; // reported when the memory is touched
            return;
        }
}

std::int64_t AddressSpace::munmap(std::uint64_t at, std::uint64_t bytes) {
    if (bytes == 0 || bytes > layout::kUserMax)
        return -EINVAL;
    bytes = page_up(bytes);
    if (!user_range(at, bytes))
        return -EINVAL;
    const std::uint64_t end = at + bytes;
    std::vector<std::shared_ptr<const CodePatches>> unused; // if no other region has them
    for (auto it = region_of(at) == regions_.end() ? regions_.lower_bound(at) : region_of(at);
         it != regions_.end() && it->first < end; ++it)
        if (it->second.patches)
            unused.push_back(it->second.patches);
    std::sort(unused.begin(), unused.end());
    unused.erase(std::unique(unused.begin(), unused.end()), unused.end());
    if (const std::int64_t result = unmap(at, end); result < 0)
        return result;
    for (const auto& patches : unused)
        if (patches.use_count() == 1)
            drop_stubs(*patches);
    return 0;
}

std::int64_t AddressSpace::unmap(std::uint64_t at, std::uint64_t end) {
    auto it = regions_.lower_bound(at);
    const auto first = region_of(at);
    if (first == regions_.end() && (it == regions_.end() || it->first >= end))
        return 0;
    if (first != regions_.end() && first->first < at && end < first->second.end && regions_.size() >= kMaxRegions)
        return -ENOMEM;
    split(at);
    split(end);
    std::vector<std::shared_ptr<const FileBacking>> files; // of shared mappings
    for (it = regions_.lower_bound(at); it != regions_.end() && it->first < end;) {
        changed();
        if (counts(it->second))
            mapped_bytes_ -= it->second.end - it->first;
        if (live(it->second) && (files.empty() || files.back() != it->second.file))
            files.push_back(it->second.file);
        it = regions_.erase(it);
    }
    drop_pages(at, end);
    for (const auto& file : files)
        if (std::none_of(regions_.begin(), regions_.end(), [&](const auto& r) { return r.second.file == file; }))
            windows_.forget(*file);
    return 0;
}

std::uint64_t AddressSpace::leaf_flags(const Region& region) const {
    std::uint64_t flags = pte::kAccessed;
    if (!(region.flags & kRegionSupervisor))
        flags |= pte::kUser;
    if (region.prot & PROT_WRITE)
        flags |= pte::kWrite | pte::kDirty;
    if (!(region.prot & PROT_EXEC))
        flags |= pte::kNoExecute;
    flags |= (region.prot & kProtMask) ? pte::kPresent : pte::kNone;
    return flags;
}

std::int64_t AddressSpace::brk(std::uint64_t end) {
    if (end < brk_begin_ || end > layout::kUserMax)
        return static_cast<std::int64_t>(brk_end_);
    const std::uint64_t old_top = page_up(brk_end_);
    const std::uint64_t new_top = page_up(end);
    if (new_top > old_top) {
        const auto next = regions_.lower_bound(old_top);
        if (region_of(old_top) != regions_.end() || (next != regions_.end() && next->first < new_top) ||
            mapped_bytes_ + (new_top - old_top) > max_bytes_ || regions_.size() >= kMaxRegions)
            return static_cast<std::int64_t>(brk_end_);
        Region region;
        region.end = new_top;
        region.prot = PROT_READ | PROT_WRITE;
        region.name = kHeapName;
        insert(old_top, std::move(region));
        populate_small(old_top, new_top);
    } else if (new_top < old_top) {
        munmap(new_top, old_top - new_top);
    }
    brk_end_ = end;
    changed();
    return static_cast<std::int64_t>(end);
}

bool AddressSpace::holds_heap(std::uint64_t at, std::uint64_t bytes) const {
    const std::uint64_t end = at + std::min(bytes, layout::kUserMax);
    auto it = regions_.upper_bound(at);
    if (it != regions_.begin())
        --it;
    for (; it != regions_.end() && it->first < end; ++it)
        if (it->second.end > at && it->second.name == kHeapName)
            return true;
    return false;
}

std::int64_t AddressSpace::all_mapped(std::uint64_t at, std::uint64_t end) const {
    for (std::uint64_t here = at; here < end;) {
        const auto region = region_of(here);
        if (region == regions_.end() || !(region->second.flags & kRegionUser))
            return -ENOMEM;
        here = region->second.end;
    }
    return 0;
}

std::int64_t AddressSpace::mlock(std::uint64_t at, std::uint64_t bytes) {
    const std::uint64_t begin = page_down(at), inside = at - begin;
    const std::uint64_t end = begin + ((bytes + inside + kPageSize - 1) & ~(kPageSize - 1)); // may wrap, as in Linux
    return end < begin ? -EINVAL : all_mapped(begin, end);
}

std::int64_t AddressSpace::mincore(std::uint64_t at, std::uint64_t bytes, GuestVirt vector) {
    if ((at & (kPageSize - 1)) != 0)
        return -EINVAL;
    bytes = page_up(bytes);
    if (!user_range(at, bytes) || bytes > (1ull << 30))
        return -ENOMEM;
    std::vector<std::byte> resident(bytes / kPageSize);
    for (std::uint64_t page = 0; page < resident.size(); ++page) {
        if (region_of(at + page * kPageSize) == regions_.end())
            return -ENOMEM;
        resident[page] = std::byte{pte::mapped(tables_.get(GuestVirt(at + page * kPageSize)))};
    }
    return write(vector, resident) ? 0 : -EFAULT;
}

bool AddressSpace::reset() {
    if (!windows_.empty())
        windows_.reset([&](const FileBacking& file) {
            return std::find(kept_files_.begin(), kept_files_.end(), &file) != kept_files_.end();
        });
    if (regions_changed_) {
        // A request may have created tens of thousands of regions, and the C library would keep their memory.
        constexpr std::size_t kMany = 16 << 10;
        const bool many = regions_.size() > pristine_->size() + kMany;
        regions_ = *pristine_;
        if (many)
            ::malloc_trim(0);
        brk_end_ = pristine_brk_end_;
        mapped_bytes_ = pristine_mapped_;
        regions_changed_ = false;
    }
    out_of_memory_ = false;
    // Frames of the image may have moved to addresses whose tables the clone added: the journal lacks these entries.
    for (const auto& [first, count] : std::exchange(moved_, {}))
        ram_->drop_translations(first, count);
    const auto& journal = tables_.journal();
    if (journal.empty())
        return false;
    // Newest first, so that the oldest value stays. A right that the program had added, or a frame that was mapped
    // instead of the image's, must not survive in the CPU's TLB.
    for (auto change = journal.rbegin(); change != journal.rend(); ++change) {
        auto* entry = reinterpret_cast<std::uint64_t*>(ram_->host(change->at));
        const std::uint64_t now = *entry;
        if (now != change->before && (now & pte::kPresent)) {
            const Frame f = pte::frame(now);
            if (f < ram_->image_frames())
                ram_->drop_translations(f, 1);
        }
        *entry = change->before;
    }
    tables_.clear_journal();
    tables_.forget_own_tables();
    return true;
}

} // namespace tinykvm
