#include "tinykvm/machine/large_pages.hpp"

#include <algorithm>
#include <atomic>

#include "tinykvm/abi/layout.hpp"
#include "tinykvm/memory/page_tables.hpp"

namespace tinykvm {
namespace {

constexpr std::uint64_t kLeaves = 512;

std::uint64_t* table(const Image& memory, std::uint64_t entry) {
    const Frame frame = pte::frame(entry);
    if (frame >= memory.frames())
        return nullptr;
    memory.ensure(frame);
    return reinterpret_cast<std::uint64_t*>(memory.data() + frame_address(frame).value);
}

// The entry that links to the leaf table of the 2 MiB from `at` on; nullptr when there is none.
std::uint64_t* upper_entry(const MachineImage& image, GuestVirt at) {
    std::uint64_t link = image.root.value;
    for (int shift = 39;; shift -= 9) {
        std::uint64_t* entries = table(*image.image, link);
        if (!entries)
            return nullptr;
        std::uint64_t& entry = entries[(at.value >> shift) & 511];
        if (!(entry & pte::kPresent) || (entry & pte::kLarge))
            return nullptr;
        if (shift == 21)
            return &entry;
        link = entry;
    }
}

// The leaf table of the 2 MiB from `at` on; nullptr when there is none.
std::uint64_t* leaves_of(const MachineImage& image, GuestVirt at) {
    const std::uint64_t* upper = upper_entry(image, at);
    return upper ? table(*image.image, *upper) : nullptr;
}

} // namespace

LargeCandidates::LargeCandidates(const MachineImage& image) : image_(image), taken_(image.image->frames()) {
    // A frame that is written to is mapped writable somewhere, so it must not be replaced.
    for (const FrameRun& run : image.working_set)
        std::fill_n(taken_.begin() + run.first, run.count, true);
}

bool LargeCandidates::fits(GuestVirt at) {
    const auto next = image_.regions->upper_bound(at.value);
    if (next == image_.regions->begin() || at.value % LargePages::kBytes != 0)
        return false;
    const Region& region = std::prev(next)->second;
    if (!region.name.starts_with('/') || region.flags != kRegionUser || (region.prot & 2) != 0 ||
        region.end > layout::kUserMax || region.end < at.value || region.end - at.value < LargePages::kBytes)
        return false;
    const std::uint64_t* leaves = leaves_of(image_, at);
    const auto fit = [&](std::uint64_t leaf) {
        const Frame frame = pte::frame(leaf);
        if (!pte::mapped(leaf) || (leaf & (pte::kWrite | pte::kNone)) || !(leaf & pte::kUser) ||
            ((leaf ^ leaves[0]) & pte::kNoExecute) != 0 || frame >= taken_.size() || taken_[frame])
            return false;
        taken_[frame] = true;
        return true;
    };
    return leaves && std::all_of(leaves, leaves + kLeaves, fit);
}

std::vector<GuestVirt> large_candidates(const MachineImage& image) {
    LargeCandidates candidates(image);
    std::vector<GuestVirt> found;
    for (const auto& [begin, region] : *image.regions) {
        std::uint64_t at = (begin + LargePages::kBytes - 1) & ~(LargePages::kBytes - 1);
        for (; at < region.end && found.size() < LargePages::kMax; at += LargePages::kBytes)
            if (candidates.fits(GuestVirt(at)))
                found.emplace_back(at);
    }
    return found;
}

std::vector<Frame> frames_of_large(const MachineImage& image, GuestVirt at) {
    std::vector<Frame> frames;
    std::uint64_t* leaves = leaves_of(image, at);
    for (std::size_t i = 0; leaves && i < kLeaves; ++i) // machines that run make entries present meanwhile
        frames.push_back(pte::frame(std::atomic_ref(leaves[i]).load(std::memory_order_relaxed)));
    return frames;
}

LargeContent::LargeContent(const MachineImage& image, std::span<const LargePageState> pages) {
    for (const LargePageState& page : pages)
        frames_.emplace_back(page.at, frames_of_large(image, GuestVirt(page.at)));
}

bool LargeContent::same_in(const MachineImage& image, std::span<const Frame> changed) const {
    std::vector<bool> other(image.image->frames());
    for (const Frame frame : changed)
        other[frame] = true;
    LargeCandidates candidates(image);
    return std::ranges::all_of(frames_, [&](const auto& page) {
        return candidates.fits(page.first) && frames_of_large(image, page.first) == page.second &&
               std::ranges::none_of(page.second, [&](Frame frame) { return other[frame]; });
    });
}

void use_large(MachineImage& image, Image& memory, std::unique_ptr<LargePages> large, std::span<const GuestVirt> at) {
    large->stand_in_for_none(); // an earlier image had them
    for (std::size_t page = 0; page < at.size(); ++page) {
        std::uint64_t* upper = upper_entry(image, at[page]);
        const std::uint64_t* leaves = upper ? table(memory, *upper) : nullptr;
        large->stand_in_for(upper ? *upper : 0);
        if (leaves)
            *upper = LargePages::address(page).value | pte::kLarge | pte::kPresent | pte::kAccessed |
                     (leaves[0] & (pte::kUser | pte::kNoExecute));
    }
    // The list for the second vCPU begins with them: they are prefaulted first.
    auto& touched = image.hot_second_vcpu;
    std::vector<std::uint64_t> all(at.size());
    std::transform(at.begin(), at.end(), all.begin(), [](GuestVirt page) { return page.value; });
    touched.insert(touched.begin(), all.begin(), all.end());
    memory.set_large(std::move(large));
}

} // namespace tinykvm
