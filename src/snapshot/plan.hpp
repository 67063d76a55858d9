// Which frames go into which chunk.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/snapshot/index.hpp"
#include "tinykvm/machine/state.hpp"

namespace kvmserver {

// A chunk ends after a page that its content chooses, one in `one_in`, as long as it has from `least` to
// `most` pages. So where two snapshots hold the same pages their chunks fall into step, whatever lies before,
// and a store keeps them once.
struct ChunkLengths {
    std::uint32_t least, one_in, most; // one_in: a power of two
};
inline constexpr ChunkLengths kHotLengths{32, 32, 96};    // small: several threads decompress them at once
inline constexpr ChunkLengths kColdLengths{256, 64, 512}; // FORMAT.md, "Sizes and speeds"

struct Plan {
    std::vector<ChunkInfo> chunks; // runs, pages and hot are set; hot ones first
    std::uint32_t stored_pages = 0;
    std::uint32_t zero_pages = 0;
    std::uint32_t copied_pages = 0; // same content as a stored one
};

// Hot frames in order of first use (by rank within a chunk), then the others by rank; ranks[f] is the rank of
// frame f, all different (address_order.hpp). Hot frames that are out of range or there twice are ignored.
// When `memory_fd` is a file of which `memory` is a shared mapping from offset 0, its holes are not even
// looked at. Hot frames of `apart` share no chunk with others: there are starts that do without them.
Plan plan_chunks(std::span<const std::byte> memory, std::span<const std::uint32_t> ranks,
                 std::span<const std::uint32_t> hot_frames, int memory_fd = -1,
                 std::span<const tinykvm::FrameRun> apart = {});

// The frames of whose pages the plan's cold chunks consist, in that order. Frames numbered so make each such
// chunk one run.
std::vector<std::uint32_t> cold_order(const Plan& plan);

// The pages of a planned chunk, one after the other.
void gather_pages(const ChunkInfo& chunk, std::span<const std::byte> memory, std::vector<std::byte>& raw);

} // namespace kvmserver
