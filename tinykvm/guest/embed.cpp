#include "tinykvm/guest/embed.hpp"

extern "C" const std::byte tinykvm_guest_kernel_begin[], tinykvm_guest_kernel_end[];
extern "C" const char tinykvm_guest_kernel_sha256[64];

namespace tinykvm {
std::span<const std::byte> guest_kernel_image() { return {tinykvm_guest_kernel_begin, tinykvm_guest_kernel_end}; }

std::array<std::uint8_t, 32> guest_kernel_sha256() {
    const auto digit = [](char c) { return static_cast<std::uint8_t>(c <= '9' ? c - '0' : c - 'a' + 10); };
    std::array<std::uint8_t, 32> digest{};
    for (std::size_t i = 0; i < digest.size(); ++i)
        digest[i] = static_cast<std::uint8_t>(digit(tinykvm_guest_kernel_sha256[2 * i]) << 4 |
                                              digit(tinykvm_guest_kernel_sha256[2 * i + 1]));
    return digest;
}
} // namespace tinykvm
