// Code of the program that leads to stubs where it would leave the machine.
#include <sys/mman.h>

#include "tinykvm/memory/address_space.hpp"
#include "tinykvm/memory/layout.hpp"

namespace tinykvm {
namespace {

constexpr std::uint64_t kReach = (2ull << 30) - kPageSize; // of a jump and of a LEA

} // namespace

std::shared_ptr<const CodePatches> AddressSpace::patch_code(std::uint64_t at, std::uint64_t bytes, const Region& region) {
    if (stub_entries_.system_call == 0 || !region.file || (region.flags & kRegionShared) || !(region.prot & PROT_EXEC) || (region.prot & PROT_WRITE))
        return nullptr;
    std::vector<CodeSite> sites = find_code_sites(region.file->fd.get(), region.file_offset, bytes);
    if (sites.empty() || regions_.size() + 3 > kMostRegions)
        return nullptr;
    // The nearest gap below. Above would be in the way of the heap.
    const std::uint64_t room = CodePatches::stub_bytes(sites.size());
    std::uint64_t top = at;
    for (auto next = regions_.lower_bound(at);;) {
        const std::uint64_t below = next == regions_.begin() ? layout::kUserMin : std::prev(next)->second.end;
        if (below <= top && top - below >= room)
            break;
        if (next == regions_.begin())
            return nullptr;
        --next;
        top = next->first;
    }
    if (at + bytes - (top - room) > kReach || mapped_bytes_ + bytes + room > max_bytes_)
        return nullptr;
    Region stubs;
    stubs.end = top;
    stubs.prot = PROT_READ | PROT_EXEC;
    stubs.name = "[stubs]";
    insert(top - room, std::move(stubs));
    for (std::uint64_t page = top - room; page < top; page += kPageSize)
        if (!pte::mapped(tables_.get(GuestVirt(page))) && populate_around(region_of(page), page, room) != FaultOutcome::done) {
            munmap(top - room, room);
            out_of_memory_ = false; // it was only for speed
            return nullptr;
        }
    const auto patches = std::make_shared<const CodePatches>(std::move(sites), top - room);
    fill(GuestVirt(top - room), patches->stubs(at - region.file_offset, stub_entries_));
    note_host_write(GuestVirt(top - room), room);
    return patches;
}

bool AddressSpace::undo_patches(std::uint64_t at, std::uint64_t end, const Region& region, std::uint64_t region_begin) {
    if (!own_frames(at, end))
        return false;
    tables_.update(GuestVirt(at), GuestVirt(end), [&](GuestVirt page, std::uint64_t entry) {
        const std::uint64_t offset = region.file_offset + (page.value - region_begin);
        region.patches->apply({ram_->host(frame_address(pte::frame(entry))), kPageSize}, offset, page.value - offset, true);
        if (track_host_writes_)
            note_frame(host_dirty_, pte::frame(entry));
        return entry;
    });
    return true;
}

} // namespace tinykvm
