// The program's memory in an image, by its page tables.
#pragma once
#include <cstddef>
#include <optional>
#include <span>

#include "tinykvm/base/guest_addr.hpp"
#include "tinykvm/machine/machine.hpp"

namespace tinykvm {

// Copies memory of the program or of the guest kernel, whatever its protection. Loads what is not loaded yet. False
// when not all of it is mapped. Throws UserError(bad_snapshot) when a part cannot be loaded.
bool read_image(const MachineImage& image, GuestVirt at, std::span<std::byte> to);

// The frame that is mapped there; nullopt: none. Throws as read_image() does.
std::optional<Frame> frame_in(const MachineImage& image, GuestVirt at);

// Whether the program in it is ready for calls of its functions (Machine::callable()), and not for connections.
bool is_callable(const MachineImage& image);

} // namespace tinykvm
