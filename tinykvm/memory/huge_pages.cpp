#include "tinykvm/memory/huge_pages.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>

#include "tinykvm/memory/image.hpp"

namespace tinykvm {
namespace {

// Whether there is any in the 2 MiB from `page` on.
bool has_memory(std::byte* page) {
    std::array<unsigned char, kHugePageFrames> there{};
    return ::mincore(page, kHugePageBytes, there.data()) == 0 &&
           std::ranges::any_of(there, [](unsigned char byte) { return (byte & 1) != 0; });
}

} // namespace

std::uint64_t collapse(std::byte* at, std::uint64_t bytes) {
    constexpr int kMadvCollapse = 25; // linux/mman.h
    std::uint64_t done = 0;
    for (std::byte* page = at; page + kHugePageBytes <= at + bytes; page += kHugePageBytes)
        // Before Linux 6.6 it fails, though not in vain, where this mapping has no page tables.
        if (has_memory(page) && ::madvise(page, kHugePageBytes, kMadvPopulateRead) == 0 &&
            ::madvise(page, kHugePageBytes, kMadvCollapse) == 0)
            done += kHugePageBytes;
    return done;
}

} // namespace tinykvm
