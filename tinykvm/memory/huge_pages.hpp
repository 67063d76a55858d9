// Huge pages of the host: 2 MiB each, which it maps by one entry of its page tables. KVM does so, too, where paging is
// two-level and both addresses are multiples of that size. Large pages (large_pages.hpp) are huge pages that the guest
// maps by one entry as well.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tinykvm/base/guest_addr.hpp"

namespace tinykvm {

inline constexpr std::uint64_t kHugePageBytes = 2 << 20;
inline constexpr std::uint32_t kHugePageFrames = kHugePageBytes / kPageSize;

// Moves the memory of a shared memfd that is mapped at `at`, a multiple of kHugePageBytes, into huge pages, whatever
// the host's settings say of those that programs do not ask for (MADV_COLLAPSE, Linux 6.1). Returns how many bytes are
// in huge pages; memory that was never written to is left out. A last part that fills no huge page stays as it is.
std::uint64_t collapse(std::byte* at, std::uint64_t bytes);

} // namespace tinykvm
