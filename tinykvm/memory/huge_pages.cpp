#include "tinykvm/memory/huge_pages.hpp"

#include <sys/mman.h>

namespace tinykvm {

std::uint64_t collapse(std::byte* at, std::uint64_t bytes) {
    constexpr int kMadvCollapse = 25; // linux/mman.h
    std::uint64_t done = 0;
    for (std::uint64_t page = 0; page + kHugePageBytes <= bytes; page += kHugePageBytes)
        if (::madvise(at + page, kHugePageBytes, kMadvCollapse) == 0)
            done += kHugePageBytes;
    return done;
}

} // namespace tinykvm
