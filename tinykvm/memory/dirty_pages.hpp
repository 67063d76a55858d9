// Which pages of a copy-on-write mapping have been written to, learned from the kernel without protecting anything:
// a page that was copied is no longer the file's.
#pragma once
#include <cstdint>
#include <vector>

#include "tinykvm/memory/guest_ram.hpp"

namespace tinykvm {

// Frames of [0, frames) of a private file mapping at `base` that this process has a copy of, ascending.
// By PAGEMAP_SCAN (Linux 6.7), else by /proc/self/pagemap. Throws HostError when neither can be read.
std::vector<Frame> private_pages(const std::byte* base, Frame frames);

// Whether all of [at, at + bytes) is there and mapped by one entry of this process's page tables. By PAGEMAP_SCAN:
// false where the kernel does not have it.
bool is_one_page(const std::byte* at, std::uint64_t bytes);
bool can_scan_pages(); // whether the kernel has PAGEMAP_SCAN

} // namespace tinykvm
