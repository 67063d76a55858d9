// Compares a machine with its image after a reset (--check-reset).
#include <atomic>
#include <cstring>

#include <fmt/format.h>

#include "tinykvm/base/zero.hpp"
#include "tinykvm/machine/machine.hpp"

namespace tinykvm {
namespace {

// Whether a page table equals the image's. These differences do not count:
// - accessed and dirty bits, which the CPU sets as it walks the tables;
// - an entry that is present in the image and lazy in this clone's own copy of the table: another clone has loaded it;
// - a link in the place of a large page (PageTables::use_table).
// The image's entries are read atomically, because other clones may make them present at the same time.
bool same_table(const GuestRam& ram, const std::byte* own, std::byte* image) {
    constexpr std::uint64_t kMarks = pte::kAccessed | pte::kDirty, kLoaded = pte::kPresent | pte::kLazy;
    for (std::size_t at = 0; at < kPageSize; at += 8) {
        std::uint64_t x;
        std::memcpy(&x, own + at, 8);
        std::uint64_t y =
            std::atomic_ref(*reinterpret_cast<std::uint64_t*>(image + at)).load(std::memory_order_relaxed);
        if ((y & pte::kLarge) != 0 && (x & pte::kLarge) == 0)
            y = ram.link(y);
        const bool loaded = (x & pte::kLazy) != 0 && (y & pte::kPresent) != 0;
        if ((x ^ y) & ~(kMarks | (loaded ? kLoaded : 0)))
            return false;
    }
    return true;
}

} // namespace

std::string Machine::compare_with_image() {
    std::byte* pristine = image_->image->data();
    std::vector<bool> is_table(ram_.image_frames());
    space_.tables().for_each_table([&](Frame frame) {
        if (frame < is_table.size())
            is_table[frame] = true;
    });
    for (Frame frame = 0; frame < ram_.image_frames(); ++frame) {
        if (!image_->image->loaded(frame))
            continue;
        const std::byte* own = ram_.host(frame_address(frame));
        std::byte* want = pristine + frame_address(frame).value;
        if (is_table[frame] ? same_table(ram_, own, want) : std::memcmp(own, want, kPageSize) == 0)
            continue;
        std::size_t at = 0;
        while (at < kPageSize - 1 && own[at] == want[at])
            ++at;
        std::string where;
        for (const auto& [begin, region] : space_.regions())
            space_.tables().update(GuestVirt(begin), GuestVirt(region.end),
                                   [&, &name = region.name](GuestVirt page, std::uint64_t entry) {
                                       if (where.empty() && pte::frame(entry) == frame)
                                           where = fmt::format(" (guest address {:#x} {})", page.value + at, name);
                                       return entry;
                                   });
        return fmt::format("frame {} byte {}: {:#04x} instead of {:#04x}{}", frame, at,
                           std::to_integer<unsigned>(own[at]), std::to_integer<unsigned>(want[at]), where);
    }
    if (ram_.high() != ram_.image_frames())
        return fmt::format("{} frames were added and not given back", ram_.high() - ram_.image_frames());
    for (Frame frame = ram_.high(); frame < ram_.image_frames() + ram_.kept_headroom(); ++frame)
        if (!is_zero(ram_.frame_bytes(frame)))
            return fmt::format("frame {}, which is kept for what comes, is not zero", frame);
    if (handles_.changed() != 0)
        return fmt::format("{} host handles differ", handles_.changed());
    auto want = image_->regions->begin();
    for (auto here = space_.regions().begin(); here != space_.regions().end() || want != image_->regions->end();
         ++here, ++want) {
        if (here == space_.regions().end() || want == image_->regions->end() || here->first != want->first ||
            here->second.end != want->second.end || here->second.prot != want->second.prot ||
            here->second.flags != want->second.flags)
            return fmt::format("the address space differs at {:#x}",
                               here == space_.regions().end() ? want->first : here->first);
    }
    if (space_.brk_end() != image_->brk_end)
        return fmt::format("the break is {:#x} instead of {:#x}", space_.brk_end(), image_->brk_end);
    return "";
}

} // namespace tinykvm
