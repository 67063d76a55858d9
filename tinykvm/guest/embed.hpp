// The guest kernel's ELF file as built, embedded in the library.
#pragma once
#include <cstddef>
#include <span>

namespace tinykvm {
std::span<const std::byte> guest_kernel_image();
} // namespace tinykvm
