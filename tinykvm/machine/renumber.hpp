// Reorders the frames of an image.
#pragma once
#include <memory>
#include <span>

#include "tinykvm/machine/machine.hpp"

namespace tinykvm {

// A copy of `image` whose memory holds the frames of `first` in that order, then the other page tables, then all other
// frames by the lowest address that maps them. Frames that nothing maps are left out, even those in `first`. The frames
// that an invocation uses then form a few runs instead of hundreds, so that few system calls unpack, copy and map them.
// The same program gives the same order in every boot. Throws UserError(bad_snapshot) when the page tables are not a
// tree.
std::shared_ptr<MachineImage> renumber(const MachineImage& image, std::span<const Frame> first);

} // namespace tinykvm
