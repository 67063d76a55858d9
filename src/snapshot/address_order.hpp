// The order in which guest memory is worth storing: neighbours in the program's address space are neighbours
// in what they hold and in when they are needed; frames are numbered by when the program touched them. What the program
// cannot write to comes first: it is the same in every snapshot of the same files, so that a store keeps it once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kvmserver {

// For every frame of `memory` its rank: page tables, then what is mapped read-only by address,
// then what is mapped writable by address, then the rest. `root` is
// the guest-physical address of the top table (Intel SDM volume 3, 4.5). Any bytes may be in the tables: what
// they say beyond memory, or for the second time, does not count.
std::vector<std::uint32_t> address_ranks(std::span<const std::byte> memory, std::uint64_t root);

} // namespace kvmserver
