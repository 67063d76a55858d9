// A request arena: memory of a clone for what its requests add, in huge pages of the host (2 MiB each).
//
// It has its memory as soon as the clone is made, and keeps it, zeroed, from one request to the next. So a request that
// needs much memory causes no page faults for it in the host, and KVM maps it in large pieces where paging is
// two-level.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tinykvm/memory/huge_pages.hpp"

namespace tinykvm {

struct RequestArena {
    std::uint64_t bytes = 0; // a multiple of kHugePageBytes; 0: none
    // Whether it is made of huge pages that the host has reserved (vm.nr_hugepages) if there are enough.
    bool takes_reserved = true;
};

// What the host backs an arena with.
enum class ArenaPages {
    ordinary,    // at least in part: the host gives no huge pages
    transparent, // huge pages that the host makes of free memory
    reserved     // huge pages that the host had reserved
};
std::string_view text_of(ArenaPages pages);

// Puts memory of an arena at `at`, aligned to kHugePageBytes, in place of what is mapped there, and populates it.
// Throws HostError.
ArenaPages map_arena(std::byte* at, const RequestArena& arena);

} // namespace tinykvm
