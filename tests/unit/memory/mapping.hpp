// Mappings for the tests of address spaces.
#pragma once
#include "tests/unit/memory/world.hpp"

namespace tinykvm::test {

inline constexpr std::uint64_t kAt = 0x10000000;

inline std::uint64_t pages(std::uint64_t n) { return n * kPageSize; }
inline std::int64_t map(AddressSpace& space, std::uint64_t at, std::uint64_t count, std::uint32_t prot = kRw,
                        std::uint32_t flags = MAP_FIXED) {
    return space.mmap(at, pages(count), prot, kAnon | flags, nullptr, 0);
}

} // namespace tinykvm::test
