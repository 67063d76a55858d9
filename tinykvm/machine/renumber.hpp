// Puts the frames of an image into another order.
#pragma once
#include <memory>
#include <span>

#include "tinykvm/machine/machine.hpp"

namespace tinykvm {

// A machine like `image` whose memory holds the frames of `first` in that order, then the other page tables,
// then all other frames by the lowest address that maps them; frames that nothing maps are left out, also of
// `first`. What an invocation uses is then a few runs of frames instead of hundreds: few system calls to
// unpack, copy and map it, and the same program gives the same order in every boot. Throws
// UserError(bad_snapshot) when the page tables are no tree.
std::shared_ptr<MachineImage> renumber(const MachineImage& image, std::span<const Frame> first);

} // namespace tinykvm
