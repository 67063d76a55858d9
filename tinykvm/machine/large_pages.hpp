// Which memory of an image can be backed by large pages (memory/large_pages.hpp), and the switch to them.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tinykvm/machine/machine.hpp"
#include "tinykvm/memory/large_pages.hpp"

namespace tinykvm {

// Finds addresses that a large page can back. All 2 MiB from such an address on must be file content that the program
// can read but not write to, with the same rights everywhere, in frames that no other candidate uses. The image's page
// tables must be loaded or have a loader.
class LargeCandidates {
public:
    explicit LargeCandidates(const MachineImage& image);
    // Whether `at` is a candidate. Takes its frames.
    bool fits(GuestVirt at);

private:
    const MachineImage& image_;
    std::vector<bool> taken_;
};

// All candidates, ascending, at most LargePages::kMax. For trusted images only: the search visits every address, and a
// tampered image may have any number of them.
std::vector<GuestVirt> large_candidates(const MachineImage& image);

// The 512 frames of a candidate, in the order of their addresses.
std::vector<Frame> frames_of_large(const MachineImage& image, GuestVirt at);

// What an image has at the places of large pages when this object is made.
class LargeContent {
public:
    LargeContent(const MachineImage& image, std::span<const LargePageState> pages);
    // Whether another image with the same memory has the same there. `changed`: frames whose bytes are others.
    bool same_in(const MachineImage& image, std::span<const Frame> changed) const;

private:
    std::vector<std::pair<GuestVirt, std::vector<Frame>>> frames_;
};

// Makes new machines use `large` instead of the frames at the candidates `at`: page i at at[i]. Call this after
// make_lazy() and clear_marks(), before any clone is made.
void use_large(MachineImage& image, Image& memory, std::unique_ptr<LargePages> large, std::span<const GuestVirt> at);

} // namespace tinykvm
