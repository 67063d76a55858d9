#include "tinykvm/guest/embed.hpp"

extern "C" const std::byte tinykvm_guest_kernel_begin[], tinykvm_guest_kernel_end[];

namespace tinykvm {
std::span<const std::byte> guest_kernel_image() {
    return {tinykvm_guest_kernel_begin, tinykvm_guest_kernel_end};
}
} // namespace tinykvm
