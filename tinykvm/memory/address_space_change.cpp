// System calls that change existing mappings: mprotect, madvise, mremap.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tinykvm/abi/layout.hpp"
#include "tinykvm/base/must_hold.hpp"
#include "tinykvm/memory/address_space.hpp"

namespace tinykvm {

std::int64_t AddressSpace::mprotect(std::uint64_t at, std::uint64_t bytes, std::uint32_t prot) {
    const std::uint32_t grows = prot & static_cast<std::uint32_t>(PROT_GROWSDOWN | PROT_GROWSUP);
    prot &= ~grows;
    if (grows == static_cast<std::uint32_t>(PROT_GROWSDOWN | PROT_GROWSUP))
        return -EINVAL;
    if ((at & (kPageSize - 1)) != 0 || (prot & ~kProtMask) != 0)
        return -EINVAL;
    if (bytes == 0)
        return 0;
    if (bytes > layout::kUserMax || !user_range(at, page_up(bytes)))
        return -ENOMEM;
    bytes = page_up(bytes);
    const std::uint64_t end = at + bytes;
    if (grows == PROT_GROWSUP ||
        (grows == PROT_GROWSDOWN && region_of(at) != regions_.end() &&
         !(region_of(at)->second.flags & kRegionGrowsDown) && region_of(at)->second.name != "[stack]"))
        return -EINVAL;
    if (const std::int64_t error = all_mapped(at, end); error < 0)
        return error;
    bool different = false;
    std::uint64_t more = 0; // bytes that were only reserved so far
    for (auto it = region_of(at); it != regions_.end() && it->first < end; ++it) {
        different |= it->second.prot != prot;
        if ((prot & PROT_WRITE) && (it->second.flags & kRegionShared) && it->second.file && !it->second.file->writable)
            return -EACCES;
        if (it->second.prot == 0 && prot != 0)
            more += std::min(end, it->second.end) - std::max(at, it->first);
    }
    if (!different)
        return 0;
    if (more > max_bytes_ - std::min(mapped_bytes_, max_bytes_))
        return -ENOMEM;
    if (regions_.size() + 2 > kMaxRegions)
        return -ENOMEM;
    if ((prot & PROT_WRITE) && !own_frames(at, end))
        return -ENOMEM;
    split(at);
    split(end);
    if (prot & PROT_WRITE)
        for (auto it = regions_.lower_bound(at); it != regions_.end() && it->first < end; ++it)
            if (!(it->second.prot & PROT_WRITE)) {
                if (!undo_patches(it->first, it->second.end))
                    return -ENOMEM;
                // Forget the patches in all parts of the mapping, or the parts could not be merged again. The stubs
                // stay, because other parts jump to them.
                if (const auto patches = it->second.patches) {
                    changed();
                    for (auto& [begin, region] : regions_)
                        if (region.patches == patches)
                            region.patches = nullptr;
                }
            }
    std::vector<std::pair<Frame, std::uint32_t>> lost; // frames whose rights shrink
    for (auto it = regions_.lower_bound(at); it != regions_.end() && it->first < end; ++it) {
        Region& region = it->second;
        changed();
        const std::uint64_t size = region.end - it->first;
        mapped_bytes_ -= counts(region) ? size : 0;
        region.prot = prot;
        mapped_bytes_ += counts(region) ? size : 0;
        const std::uint64_t flags = leaf_flags(region);
        tables_.update(GuestVirt(it->first), GuestVirt(region.end), [&](GuestVirt, std::uint64_t entry) {
            // Keeps the dirty bit, which the dirty-bit reset needs. A page that is no longer readable keeps its frame,
            // with the lazy bit: it is absent for the CPU only.
            std::uint64_t next = (entry & (pte::kAddress | pte::kDirty)) | flags;
            if (!(next & pte::kPresent) || (entry & (pte::kPresent | pte::kLazy)) == pte::kLazy)
                next = (next & ~(pte::kPresent | pte::kDirty)) | pte::kLazy | (entry & pte::kDirty);
            if ((next & pte::kWrite) && !(entry & pte::kWrite))
                note_frame(made_writable_, pte::frame(entry));
            const bool shrinks = (entry & pte::kPresent) &&
                                 (!(next & pte::kPresent) || ((entry & pte::kWrite) && !(next & pte::kWrite)) ||
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
    // Merge neighbours that became equal. Otherwise the map grows whenever a JIT changes a page's protection.
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
        tables_.set(page, (entry & ~pte::kAddress) | frame_address(own).value); // cannot fail: the tables exist
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
        if (const std::int64_t error = punch_holes(at, end); error < 0)
            return error;
        break;
    case MADV_WIPEONFORK:
        for (auto it = region_of(at) != regions_.end() ? region_of(at) : regions_.lower_bound(at);
             it != regions_.end() && it->first < end; ++it)
            if (it->second.file || (it->second.flags & kRegionShared))
                return -EINVAL;
        [[fallthrough]];
    case MADV_KEEPONFORK:
        if (regions_.size() + 2 > kMaxRegions)
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
    case MADV_FREE: // the kernel may free the pages at any later time, or never
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
    case MADV_PAGEOUT: break;
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
    // Linux acts on the mapped parts and then returns ENOMEM if there were holes.
    return all_mapped(at, end);
}

std::int64_t AddressSpace::mremap(std::uint64_t at, std::uint64_t old_bytes, std::uint64_t new_bytes,
                                  std::uint32_t flags, std::uint64_t new_at) {
    if ((at & (kPageSize - 1)) != 0 || new_bytes == 0 || new_bytes > layout::kUserMax || old_bytes > layout::kUserMax ||
        (flags & ~static_cast<std::uint32_t>(MREMAP_MAYMOVE | MREMAP_FIXED)) != 0)
        return -EINVAL;
    old_bytes = page_up(old_bytes);
    new_bytes = page_up(new_bytes);
    if (old_bytes == 0 || !user_range(at, old_bytes))
        return -EINVAL;
    const auto here = region_of(at);
    if (here == regions_.end() || here->second.end < at + old_bytes)
        return -EFAULT;                        // as in Linux: one mapping only
    const bool counted = counts(here->second); // unmap() below may invalidate `here`
    if (flags & MREMAP_FIXED) {
        if (!(flags & MREMAP_MAYMOVE) || !user_range(new_at, new_bytes))
            return -EINVAL;
        if (new_at < at + old_bytes && at < new_at + new_bytes)
            return -EINVAL;
        // Check before anything changes: the target, the shrunk tail and the old place may each split a region.
        if (regions_.size() + 3 > kMaxRegions)
            return -ENOMEM;
        if (const std::int64_t result = unmap(new_at, new_at + new_bytes); result < 0)
            return result;
    }
    if (new_bytes <= old_bytes) {
        if (new_bytes < old_bytes)
            if (const std::int64_t result = munmap(at + new_bytes, old_bytes - new_bytes); result < 0)
                return result;
        if (!(flags & MREMAP_FIXED))
            return static_cast<std::int64_t>(at);
        old_bytes = new_bytes;
    } else if (counted && mapped_bytes_ + (new_bytes - old_bytes) > max_bytes_) {
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
            if (regions_.size() >= kMaxRegions)
                return -ENOMEM;
            Region tail = region;
            tail.end = at + new_bytes;
            if (tail.file)
                tail.file_offset += old_bytes;
            insert(end, std::move(tail));
            return static_cast<std::int64_t>(at);
        }
        if (!(flags & MREMAP_MAYMOVE))
            return -ENOMEM;
        if (regions_.size() + 2 > kMaxRegions)
            return -ENOMEM;
        new_at = find_free(new_bytes);
        if (new_at == 0)
            return -ENOMEM;
    }
    // Add the tables for all pages first, so that nothing has changed when there is no memory for them.
    bool room = true;
    std::uint64_t table = ~std::uint64_t{0}; // the last one that is known to exist
    tables_.update(GuestVirt(at), GuestVirt(at + old_bytes), [&](GuestVirt page, std::uint64_t entry) {
        const std::uint64_t to = new_at + (page.value - at);
        if (to >> 21 != table) {
            table = to >> 21;
            room = room && tables_.set(GuestVirt(to), 0);
        }
        return entry;
    });
    if (!room || !undo_patches(at, at + old_bytes))
        return -ENOMEM;
    region.patches = nullptr;
    // Move the pages: the frames stay, their addresses change.
    std::vector<std::pair<std::uint64_t, std::uint64_t>> pages;
    tables_.update(GuestVirt(at), GuestVirt(at + old_bytes), [&](GuestVirt page, std::uint64_t entry) -> std::uint64_t {
        pages.emplace_back(page.value, entry);
        return 0;
    });
    for (std::size_t i = 0; i < pages.size();) {
        const Frame first = pte::frame(pages[i].second);
        std::uint32_t count = 0;
        for (; i < pages.size() && pte::frame(pages[i].second) == first + count; ++i, ++count)
            must_hold(tables_.set(GuestVirt(new_at + (pages[i].first - at)), pages[i].second));
        ram_->drop_translations(first, count);
        if (first < ram_->image_frames())
            moved_.emplace_back(first, count);
    }
    // Insert the new region first: a file's windows are closed with its last mapping.
    region.end = new_at + new_bytes;
    insert(new_at, std::move(region));
    munmap(at, old_bytes);
    return static_cast<std::int64_t>(new_at);
}

} // namespace tinykvm
