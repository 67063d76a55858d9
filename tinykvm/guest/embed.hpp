// The guest kernel's ELF file as built, embedded in the library.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tinykvm {
std::span<const std::byte> guest_kernel_image();
std::array<std::uint8_t, 32> guest_kernel_sha256();
} // namespace tinykvm
