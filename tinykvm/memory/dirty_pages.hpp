// Which pages of a copy-on-write mapping have been written to. The kernel tells, without write protection: a copied
// page no longer belongs to the file.
#pragma once
#include <cstdint>
#include <vector>

#include "tinykvm/memory/guest_ram.hpp"

namespace tinykvm {

// Those frames of [0, frames) in a private file mapping at `base` of which this process has a copy, ascending. Uses
// PAGEMAP_SCAN (Linux 6.7), else /proc/self/pagemap. Throws HostError when neither can be read.
std::vector<Frame> private_pages(const std::byte* base, Frame frames);

// Whether all of [at, at + bytes) is present and mapped by large entries of this process's page tables. False when the
// kernel lacks PAGEMAP_SCAN.
bool is_one_page(const std::byte* at, std::uint64_t bytes);
bool can_scan_pages(); // whether the kernel has PAGEMAP_SCAN

} // namespace tinykvm
