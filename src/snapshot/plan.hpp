// Which frames go into which chunk.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/snapshot/index.hpp"

namespace kvmserver {

inline constexpr std::uint32_t kHotChunkPages = 64;   // small: several threads decompress them at once
inline constexpr std::uint32_t kColdChunkPages = 384; // FORMAT.md, "Sizes and speeds"

struct Plan {
    std::vector<ChunkInfo> chunks; // runs, pages and hot are set; hot ones first
    std::uint32_t stored_pages = 0;
    std::uint32_t zero_pages = 0;
    std::uint32_t copied_pages = 0; // same content as a stored one
};

// Hot frames in order of first use (by rank within a chunk), then the others by rank; ranks[f] is the rank of
// frame f, all different (address_order.hpp). Hot frames that are out of range or there twice are ignored.
// When `memory_fd` is a file of which `memory` is a shared mapping from offset 0, its holes are not even
// looked at.
Plan plan_chunks(std::span<const std::byte> memory, std::span<const std::uint32_t> ranks,
                 std::span<const std::uint32_t> hot_frames, int memory_fd = -1);

// The pages of a planned chunk, one after the other.
void gather_pages(const ChunkInfo& chunk, std::span<const std::byte> memory, std::vector<std::byte>& raw);

} // namespace kvmserver
