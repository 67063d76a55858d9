#include "tinykvm/memory/address_space.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "tinykvm/base/error.hpp"
#include "tinykvm/memory/layout.hpp"

namespace tinykvm {
namespace {

constexpr std::uint32_t kProtMask = PROT_READ | PROT_WRITE | PROT_EXEC;
// As Linux's vm.max_map_count: regions take memory of the host that no limit of the machine counts.
constexpr std::size_t kMostRegions = 65530;

bool mergeable(const Region& a, const Region& b, std::uint64_t a_begin) {
    if (a.prot != b.prot || a.flags != b.flags || a.file != b.file || a.name != b.name)
        return false;
    return !a.file || a.file_offset + (a.end - a_begin) == b.file_offset;
}

} // namespace

AddressSpace::AddressSpace(GuestRam& ram, std::uint64_t max_bytes) : ram_(&ram), tables_(ram), max_bytes_(max_bytes) {}

AddressSpace::AddressSpace(GuestRam& ram, GuestPhys root, std::shared_ptr<const Regions> regions,
                           std::uint64_t brk_begin, std::uint64_t brk_end, std::uint64_t max_bytes)
    : ram_(&ram), tables_(ram, root), regions_(*regions), pristine_(std::move(regions)), brk_begin_(brk_begin),
      brk_end_(brk_end), pristine_brk_end_(brk_end), max_bytes_(max_bytes) {
    for (const auto& [begin, region] : regions_)
        if (region.flags & kRegionUser)
            mapped_bytes_ += region.end - begin;
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
    if (region.flags & kRegionUser)
        mapped_bytes_ += region.end - begin;
    auto [here, fresh] = regions_.emplace(begin, std::move(region));
    assert(fresh);
    if (const auto next = std::next(here);
        next != regions_.end() && here->second.end == next->first && mergeable(here->second, next->second, here->first)) {
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
    if (mapped_bytes_ + bytes > max_bytes_ || regions_.size() + 2 > kMostRegions)
        return -ENOMEM;
    if (!fixed) {
        const std::uint64_t hint = page_down(at);
        const auto next = regions_.lower_bound(hint);
        const bool free_hint = hint >= layout::kUserMin && hint < layout::kMmapTop && bytes <= layout::kMmapTop - hint &&
                               region_of(hint) == regions_.end() &&
                               (next == regions_.end() || next->first >= hint + bytes);
        at = free_hint ? hint : find_free(bytes);
        if (at == 0)
            return -ENOMEM;
    } else {
        const std::int64_t result = munmap(at, bytes);
        if (result < 0)
            return result;
    }
    Region region;
    region.end = at + bytes;
    region.prot = prot;
    region.flags = kRegionUser | ((flags & MAP_SHARED) ? kRegionShared : 0u);
    if (file)
        region.name = file->name;
    region.file = std::move(file);
    region.file_offset = region.file ? offset : 0;
    insert(at, std::move(region));
    populate_small(at, at + bytes);
    if (flags & MAP_POPULATE)
        for (std::uint64_t page = at; page < at + bytes; page += kPageSize)
            if (fault(GuestVirt(page), FaultAccess::read) != FaultOutcome::done)
                break;
    return static_cast<std::int64_t>(at);
}

// Memory that is mapped in small pieces is about to be used: giving it frames now (which cost nothing until they are touched)
// saves the exit of its first fault.
void AddressSpace::populate_small(std::uint64_t begin, std::uint64_t end) {
    constexpr std::uint64_t kSmall = 256 << 10;
    const auto region = region_of(begin);
    if (end - begin > kSmall || region->second.file || !(region->second.prot & PROT_WRITE))
        return;
    for (std::uint64_t page = begin; page < std::min(end, region->second.end); page += kPageSize)
        if (!pte::mapped(tables_.get(GuestVirt(page))) && populate_around(region, page, kSmall) != FaultOutcome::done) {
            out_of_memory_ = false; // told when the memory is touched
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
    auto it = regions_.lower_bound(at);
    const auto first = region_of(at);
    if (first == regions_.end() && (it == regions_.end() || it->first >= end))
        return 0;
    if (first != regions_.end() && first->first < at && end < first->second.end && regions_.size() >= kMostRegions)
        return -ENOMEM;
    split(at);
    split(end);
    for (it = regions_.lower_bound(at); it != regions_.end() && it->first < end;) {
        changed();
        mapped_bytes_ -= it->second.end - it->first;
        it = regions_.erase(it);
    }
    drop_pages(at, end);
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

std::int64_t AddressSpace::mprotect(std::uint64_t at, std::uint64_t bytes, std::uint32_t prot) {
    prot &= ~static_cast<std::uint32_t>(PROT_GROWSDOWN | PROT_GROWSUP);
    if ((at & (kPageSize - 1)) != 0 || (prot & ~kProtMask) != 0)
        return -EINVAL;
    if (bytes == 0)
        return 0;
    if (bytes > layout::kUserMax || !user_range(at, page_up(bytes)))
        return -ENOMEM;
    bytes = page_up(bytes);
    const std::uint64_t end = at + bytes;
    for (std::uint64_t here = at; here < end;) {
        const auto region = region_of(here);
        if (region == regions_.end())
            return -ENOMEM;
        here = region->second.end;
    }
    bool different = false;
    for (auto it = region_of(at); it != regions_.end() && it->first < end; ++it)
        different |= it->second.prot != prot;
    if (!different)
        return 0;
    if (regions_.size() + 2 > kMostRegions)
        return -ENOMEM;
    if ((prot & PROT_WRITE) && !own_frames(at, end))
        return -ENOMEM;
    split(at);
    split(end);
    std::vector<std::pair<Frame, std::uint32_t>> lost; // frames whose rights shrink
    for (auto it = regions_.lower_bound(at); it != regions_.end() && it->first < end; ++it) {
        Region& region = it->second;
        changed();
        region.prot = prot;
        const std::uint64_t flags = leaf_flags(region);
        tables_.update(GuestVirt(it->first), GuestVirt(region.end), [&](GuestVirt, std::uint64_t entry) {
            // Whether it was written to must not be forgotten (dirty-bit reset).
            // A page that is not readable any more keeps its frame under the lazy mark: absent for the CPU only.
            std::uint64_t next = (entry & (pte::kAddress | pte::kDirty)) | flags;
            if (!(next & pte::kPresent) || (entry & (pte::kPresent | pte::kLazy)) == pte::kLazy)
                next = (next & ~(pte::kPresent | pte::kDirty)) | pte::kLazy | (entry & pte::kDirty);
            if ((next & pte::kWrite) && !(entry & pte::kWrite))
                note_frame(made_writable_, pte::frame(entry));
            const bool shrinks = (entry & pte::kPresent) && (!(next & pte::kPresent) ||
                                                            ((entry & pte::kWrite) && !(next & pte::kWrite)) ||
                                                            (!(entry & pte::kNoExecute) && (next & pte::kNoExecute)));
            if (shrinks) {
                const Frame f = pte::frame(entry);
                if (!lost.empty() && lost.back().first + lost.back().second == f)
                    ++lost.back().second;
                else
                    lost.emplace_back(f, 1);
            }
            return next;
        });
    }
    for (const auto& [first, count] : lost)
        ram_->drop_translations(first, count);
    populate_small(at, end);
    // Neighbours that became alike are merged again, or the map grows with every flip of a JIT's page.
    auto it = region_of(at);
    if (it != regions_.begin())
        --it;
    while (it != regions_.end() && it->first <= end) {
        const auto next = std::next(it);
        if (next != regions_.end() && it->second.end == next->first && mergeable(it->second, next->second, it->first)) {
            it->second.end = next->second.end;
            regions_.erase(next);
        } else {
            ++it;
        }
    }
    return 0;
}

bool AddressSpace::own_frames(std::uint64_t at, std::uint64_t end) {
    std::vector<GuestVirt> pages;
    tables_.update(GuestVirt(at), GuestVirt(end), [&](GuestVirt page, std::uint64_t entry) {
        if (ram_->shared(pte::frame(entry)))
            pages.push_back(page);
        return entry;
    });
    if (pages.empty())
        return true;
    const auto first = ram_->allocate(static_cast<std::uint32_t>(pages.size()));
    if (!first)
        return false;
    Frame own = *first;
    for (const GuestVirt page : pages) {
        const std::uint64_t entry = tables_.get(page);
        const Frame shared = pte::frame(entry);
        if (const Image* image = ram_->image())
            image->ensure(shared);
        std::memcpy(ram_->host(frame_address(own)), ram_->host(frame_address(shared)), kPageSize);
        tables_.set(page, (entry & ~pte::kAddress) | frame_address(own).value); // the tables for it are there
        ram_->drop_translations(shared, 1);
        ++own;
    }
    return true;
}

std::int64_t AddressSpace::madvise(std::uint64_t at, std::uint64_t bytes, int advice) {
    if ((at & (kPageSize - 1)) != 0 || bytes > layout::kUserMax)
        return -EINVAL;
    if (bytes == 0)
        return 0;
    bytes = page_up(bytes);
    if (!user_range(at, bytes))
        return -EINVAL;
    const std::uint64_t end = at + bytes;
    switch (advice) {
    case MADV_DONTNEED:
        // Shared memory keeps what it holds (madvise(2)).
        for (auto it = region_of(at) != regions_.end() ? region_of(at) : regions_.lower_bound(at);
             it != regions_.end() && it->first < end; ++it)
            if (!(it->second.flags & kRegionShared))
                drop_pages(std::max(at, it->first), std::min(end, it->second.end));
        break;
    case MADV_REMOVE:
        drop_pages(at, end);
        break;
    case MADV_WIPEONFORK:
    case MADV_KEEPONFORK:
        if (regions_.size() + 2 > kMostRegions)
            return -ENOMEM;
        split(at);
        split(end);
        for (auto it = regions_.lower_bound(at); it != regions_.end() && it->first < end; ++it) {
            changed();
            if (advice == MADV_WIPEONFORK)
                it->second.flags |= kRegionWipeOnFork;
            else
                it->second.flags &= ~static_cast<std::uint32_t>(kRegionWipeOnFork);
        }
        break;
    case MADV_FREE: // may drop the pages any time later: never is allowed
    case MADV_NORMAL:
    case MADV_RANDOM:
    case MADV_SEQUENTIAL:
    case MADV_WILLNEED:
    case MADV_DONTFORK:
    case MADV_DOFORK:
    case MADV_HUGEPAGE:
    case MADV_NOHUGEPAGE:
    case MADV_DONTDUMP:
    case MADV_DODUMP:
    case MADV_MERGEABLE:
    case MADV_UNMERGEABLE:
    case MADV_COLD:
    case MADV_PAGEOUT:
        break;
    case 22: // MADV_POPULATE_READ
    case 23: // MADV_POPULATE_WRITE
        for (std::uint64_t page = at; page < end; page += kPageSize) {
            const FaultOutcome outcome = fault(GuestVirt(page), advice == 22 ? FaultAccess::read : FaultAccess::write);
            if (outcome != FaultOutcome::done)
                return outcome == FaultOutcome::not_mapped ? -ENOMEM : -EFAULT;
        }
        break;
    default: return -EINVAL;
    }
    // Linux acts on what is mapped and then says ENOMEM when there were holes.
    for (std::uint64_t here = at; here < end;) {
        const auto region = region_of(here);
        if (region == regions_.end())
            return -ENOMEM;
        here = region->second.end;
    }
    return 0;
}

std::int64_t AddressSpace::mremap(std::uint64_t at, std::uint64_t old_bytes, std::uint64_t new_bytes,
                                  std::uint32_t flags, std::uint64_t new_at) {
    if (new_bytes == 0 || new_bytes > layout::kUserMax || old_bytes > layout::kUserMax ||
        (flags & ~static_cast<std::uint32_t>(MREMAP_MAYMOVE | MREMAP_FIXED)) != 0)
        return -EINVAL;
    old_bytes = page_up(old_bytes);
    new_bytes = page_up(new_bytes);
    if (old_bytes == 0 || !user_range(at, old_bytes))
        return -EINVAL;
    const auto here = region_of(at);
    if (here == regions_.end() || here->second.end < at + old_bytes)
        return -EFAULT; // like Linux: one mapping only
    if (flags & MREMAP_FIXED) {
        if (!(flags & MREMAP_MAYMOVE) || !user_range(new_at, new_bytes))
            return -EINVAL;
        if (new_at < at + old_bytes && at < new_at + new_bytes)
            return -EINVAL;
        if (const std::int64_t result = munmap(new_at, new_bytes); result < 0)
            return result;
    }
    if (new_bytes <= old_bytes) {
        if (new_bytes < old_bytes)
            munmap(at + new_bytes, old_bytes - new_bytes);
        if (!(flags & MREMAP_FIXED))
            return static_cast<std::int64_t>(at);
        old_bytes = new_bytes;
    } else if (mapped_bytes_ + (new_bytes - old_bytes) > max_bytes_) {
        return -ENOMEM;
    }
    Region region = region_of(at)->second;
    const std::uint64_t region_begin = region_of(at)->first;
    if (region.file)
        region.file_offset += at - region_begin;
    if (!(flags & MREMAP_FIXED)) {
        const std::uint64_t end = at + old_bytes;
        const auto next = regions_.lower_bound(end);
        if (region.end == end && at + new_bytes <= layout::kMmapTop &&
            (next == regions_.end() || next->first >= at + new_bytes)) {
            Region tail = region;
            tail.end = at + new_bytes;
            if (tail.file)
                tail.file_offset += old_bytes;
            insert(end, std::move(tail));
            return static_cast<std::int64_t>(at);
        }
        if (!(flags & MREMAP_MAYMOVE))
            return -ENOMEM;
        new_at = find_free(new_bytes);
        if (new_at == 0)
            return -ENOMEM;
    }
    // Move: the frames stay, their addresses change.
    std::vector<std::pair<std::uint64_t, std::uint64_t>> pages;
    tables_.update(GuestVirt(at), GuestVirt(at + old_bytes), [&](GuestVirt page, std::uint64_t entry) -> std::uint64_t {
        pages.emplace_back(page.value, entry);
        return 0;
    });
    for (std::size_t i = 0; i < pages.size();) {
        const Frame first = pte::frame(pages[i].second);
        std::uint32_t count = 0;
        for (; i < pages.size() && pte::frame(pages[i].second) == first + count; ++i, ++count)
            if (!tables_.set(GuestVirt(new_at + (pages[i].first - at)), pages[i].second))
                return -ENOMEM;
        ram_->drop_translations(first, count);
        if (first < ram_->image_frames())
            moved_.emplace_back(first, count);
    }
    munmap(at, old_bytes);
    region.end = new_at + new_bytes;
    insert(new_at, std::move(region));
    return static_cast<std::int64_t>(new_at);
}

std::int64_t AddressSpace::brk(std::uint64_t end) {
    if (end < brk_begin_ || end > layout::kUserMax)
        return static_cast<std::int64_t>(brk_end_);
    const std::uint64_t old_top = page_up(brk_end_);
    const std::uint64_t new_top = page_up(end);
    if (new_top > old_top) {
        const auto next = regions_.lower_bound(old_top);
        if (region_of(old_top) != regions_.end() || (next != regions_.end() && next->first < new_top) || mapped_bytes_ + (new_top - old_top) > max_bytes_)
            return static_cast<std::int64_t>(brk_end_);
        Region region;
        region.end = new_top;
        region.prot = PROT_READ | PROT_WRITE;
        region.name = "[heap]";
        insert(old_top, std::move(region));
        populate_small(old_top, new_top);
    } else if (new_top < old_top) {
        munmap(new_top, old_top - new_top);
    }
    brk_end_ = end;
    changed();
    return static_cast<std::int64_t>(end);
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
    if (regions_changed_) {
        regions_ = *pristine_;
        brk_end_ = pristine_brk_end_;
        mapped_bytes_ = pristine_mapped_;
        regions_changed_ = false;
    }
    out_of_memory_ = false;
    // Frames of the image that were moved to addresses whose tables the machine added: no journal has these entries.
    for (const auto& [first, count] : std::exchange(moved_, {}))
        ram_->drop_translations(first, count);
    const auto& journal = tables_.journal();
    if (journal.empty())
        return false;
    // Newest first, so that the oldest value stays. A right that the program had added, or a frame it had mapped
    // in place of the image's, must not survive in the CPU's own copies.
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
