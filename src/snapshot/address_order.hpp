// The order in which guest memory is stored. Neighbours in the program's address space have similar content and are
// needed at similar times; frame numbers only reflect when the program touched them. Pages that the program cannot
// write come first: they are the same in every snapshot of the same files, so that a store keeps them once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kvmserver {

// Returns the rank of every frame of `memory`: page tables, then pages mapped read-only by address, then pages mapped
// writable by address, then the rest. `root` is the guest-physical address of the top-level table (Intel SDM volume 3,
// 4.5). The tables are untrusted: entries that point beyond memory, or to a frame seen before, are ignored.
std::vector<std::uint32_t> address_ranks(std::span<const std::byte> memory, std::uint64_t root);

} // namespace kvmserver
