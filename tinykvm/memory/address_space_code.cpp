// Patches the program's code, so that it jumps to stubs where it would leave the machine.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "tinykvm/abi/layout.hpp"
#include "tinykvm/memory/address_space.hpp"

namespace tinykvm {
namespace {

constexpr std::uint64_t kReach = (2ull << 30) - kPageSize; // of a jump and of a LEA
constexpr std::size_t kMaxSites = 32768;                   // per machine, because they take host memory

} // namespace

std::shared_ptr<const CodePatches> AddressSpace::patch_code(std::uint64_t at, std::uint64_t bytes,
                                                            const Region& region) {
    if (stub_entries_.system_call == 0 || !region.file || (region.flags & kRegionShared) ||
        !(region.prot & PROT_EXEC) || (region.prot & PROT_WRITE))
        return nullptr;
    std::size_t sites_in_use = 0;
    const CodePatches* last = nullptr;
    for (const auto& [begin, other] : regions_)
        if (other.patches && other.patches.get() != last) {
            last = other.patches.get();
            sites_in_use += last->sites();
        }
    if (sites_in_use >= kMaxSites || regions_.size() + 3 > kMaxRegions)
        return nullptr;
    std::vector<CodeSite> sites =
        find_code_sites(region.file->fd.get(), region.file_offset, bytes, kMaxSites - sites_in_use);
    if (sites.empty())
        return nullptr;
    // Use the nearest gap below: above, the stubs would be in the way of the heap.
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
    stubs.name = kStubsName;
    insert(top - room, std::move(stubs));
    for (std::uint64_t page = top - room; page < top; page += kPageSize)
        if (!pte::mapped(tables_.get(GuestVirt(page))) &&
            populate_around(region_of(page), page, kPageSize) != FaultOutcome::done) {
            unmap(top - room, top);
            out_of_memory_ = false; // patches are only an optimisation
            return nullptr;
        }
    auto patches = std::make_shared<const CodePatches>(std::move(sites), at - region.file_offset, top - room);
    fill(GuestVirt(top - room), patches->stubs(stub_entries_));
    note_host_write(GuestVirt(top - room), room);
    return patches;
}

// Unmaps regions of stubs only: the program may have mapped something else there.
void AddressSpace::drop_stubs(const CodePatches& patches) {
    const std::uint64_t begin = patches.stubs_at(), end = begin + patches.stubs_bytes();
    for (std::uint64_t at = begin; at < end;) {
        auto region = region_of(at);
        if (region == regions_.end())
            region = regions_.lower_bound(at);
        if (region == regions_.end() || region->first >= end)
            return;
        const std::uint64_t from = std::max(at, region->first), to = std::min(end, region->second.end);
        if (region->second.name == kStubsName)
            unmap(from, to);
        at = to;
    }
}

// Finds the patches by the jumps and stubs in memory, because a restored image has no CodePatches.
bool AddressSpace::undo_patches(std::uint64_t at, std::uint64_t end) {
    const auto stub = [&](std::uint64_t address) -> const std::byte* {
        const auto region = region_of(address);
        if (region == regions_.end() || region->second.name != kStubsName || address % abi::kStubBytes != 0)
            return nullptr;
        const Frame frame = pte::frame(tables_.get(GuestVirt(page_down(address))));
        if (!pte::mapped(tables_.get(GuestVirt(page_down(address)))) || !ram_->valid(frame))
            return nullptr;
        if (const Image* image = ram_->image(); image && frame < image->frames())
            image->ensure(frame);
        return ram_->host(frame_address(frame)) + address % kPageSize;
    };
    if (std::none_of(regions_.begin(), regions_.end(), [](const auto& r) { return r.second.name == kStubsName; }))
        return true;
    if (!own_frames(at, end))
        return false;
    tables_.update(GuestVirt(at), GuestVirt(end), [&](GuestVirt page, std::uint64_t entry) {
        const Frame frame = pte::frame(entry);
        if (!ram_->valid(frame) || ram_->is_window(frame))
            return entry;
        if (const Image* image = ram_->image(); image && frame < image->frames())
            image->ensure(frame);
        std::byte* const bytes = ram_->host(frame_address(frame));
        bool written = false;
        for (std::size_t i = 0; i + kJumpBytes <= kPageSize; ++i) {
            if (bytes[i] != std::byte{0xe9})
                continue;
            std::int32_t distance;
            std::memcpy(&distance, bytes + i + 1, sizeof(distance));
            const std::uint64_t target =
                page.value + i + kJumpBytes + static_cast<std::uint64_t>(std::int64_t{distance});
            const std::byte* const code = stub(target);
            const auto original =
                code ? replaced_by_jump(page.value + i,
                                        std::span<const std::byte, abi::kStubBytes>(code, abi::kStubBytes), target)
                     : std::nullopt;
            if (!original)
                continue;
            std::copy(original->begin(), original->end(), bytes + i);
            i += kJumpBytes - 1;
            written = true;
        }
        if (written && track_host_writes_)
            note_frame(host_dirty_, frame);
        if (written && !(entry & pte::kWrite))
            note_frame(made_writable_, frame);
        return entry;
    });
    return true;
}

bool AddressSpace::undo_all_patches() {
    stub_entries_ = {};
    std::vector<std::pair<std::uint64_t, std::uint64_t>> code;
    for (auto& [begin, region] : regions_) {
        if (!(region.prot & PROT_EXEC) || !region.name.starts_with('/') || live(region))
            continue;
        region.patches = nullptr; // pages that are read later show the file
        code.emplace_back(begin, region.end);
    }
    changed();
    return std::all_of(code.begin(), code.end(), [&](const auto& range) {
        bool patched = false; // own_frames() copies pages, so leave out regions without patches
        tables_.update(GuestVirt(range.first), GuestVirt(range.second), [&](GuestVirt, std::uint64_t entry) {
            patched = true;
            return entry;
        });
        return !patched || undo_patches(range.first, range.second);
    });
}

bool AddressSpace::poke(GuestVirt at, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const std::uint64_t page = page_down(at.value);
        const auto region = region_of(page);
        if (region == regions_.end() || (region->second.flags & kRegionSupervisor) || live(region->second))
            return false;
        if (!(tables_.get(GuestVirt(page)) & pte::kPresent) && region->second.prot != 0 &&
            fault(GuestVirt(page), FaultAccess::read) != FaultOutcome::done)
            return false;
        if (!own_frames(page, page + kPageSize))
            return false;
        const std::uint64_t entry = tables_.get(GuestVirt(page));
        const Frame frame = pte::frame(entry);
        if (!pte::mapped(entry) || !ram_->valid(frame) || ram_->is_window(frame))
            return false;
        if (const Image* image = ram_->image(); image && frame < image->frames())
            image->ensure(frame);
        const std::size_t n = std::min<std::size_t>(bytes.size(), page + kPageSize - at.value);
        std::memcpy(ram_->host(frame_address(frame)) + at.value % kPageSize, bytes.data(), n);
        if (track_host_writes_)
            note_frame(host_dirty_, frame);
        if (!(entry & pte::kWrite))
            note_frame(made_writable_, frame);
        bytes = bytes.subspan(n);
        at = at + n;
    }
    return true;
}

} // namespace tinykvm
