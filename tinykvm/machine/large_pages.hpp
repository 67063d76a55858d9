// Which memory of an image can be had in large pages, and their use.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "tinykvm/machine/machine.hpp"
#include "tinykvm/memory/large_pages.hpp"

namespace tinykvm {

// Whether 2 MiB of files' pages are mapped from an address on that the program can read but not write to, all with the
// same rights, and in frames that no other candidate had. The page tables must be in the image or have a loader.
class LargeCandidates {
public:
    explicit LargeCandidates(const MachineImage& image);
    bool fits(GuestVirt at);

private:
    const MachineImage& image_;
    std::vector<bool> taken_;
};

// All of them, ascending. For images of our own: one that somebody tampered with may have any number of addresses.
std::vector<GuestVirt> large_candidates(const MachineImage& image);

// The frames of a candidate, by address.
std::vector<Frame> frames_of_large(const MachineImage& image, GuestVirt at);

// From now on machines use `large` in place of the frames at these addresses, which are candidates: page i at at[i].
// Before any is made, after make_lazy() and clear_marks().
void use_large(MachineImage& image, Image& memory, std::unique_ptr<LargePages> large, std::span<const GuestVirt> at);

} // namespace tinykvm
