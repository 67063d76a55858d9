#include "tinykvm/elf/vdso/vdso.hpp"

extern "C" {
extern const std::byte tinykvm_vdso_begin[];
extern const std::byte tinykvm_vdso_end[];
}

namespace tinykvm {

std::span<const std::byte> vdso_image() { return {tinykvm_vdso_begin, tinykvm_vdso_end}; }

} // namespace tinykvm
