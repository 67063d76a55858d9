// Decides which frames go into which chunk.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/snapshot/index.hpp"
#include "tinykvm/base/io_buffer.hpp"
#include "tinykvm/machine/state.hpp"

namespace kvmserver {

// Content-defined chunk boundaries: a chunk ends after a page whose hash says so (one in `one_in`), within `least` to
// `most` pages. Where two snapshots hold the same pages, their chunk boundaries become aligned again whatever lies
// before, and a store keeps the chunks once.
struct ChunkLengths {
    std::uint32_t least, one_in, most; // in pages; one_in is a power of two
};
// small, so that several threads can decompress them in parallel
inline constexpr ChunkLengths kHotLengths{32, 32, 96};
inline constexpr ChunkLengths kColdLengths{256, 64, 512}; // FORMAT.md, "Sizes and speeds"

// The result of plan_chunks().
struct Plan {
    std::vector<ChunkInfo> chunks; // hot ones first; only runs, pages and hot are set
    std::uint32_t stored_pages = 0;
    std::uint32_t zero_pages = 0;
    std::uint32_t copied_pages = 0; // same content as a stored page
};

// Hot frames are placed in order of first use (by rank within a chunk), then the others by rank. ranks[f] is the rank
// of frame f, all different (address_order.hpp). Hot frames that are out of range or duplicates are ignored. If
// `memory_fd` is a file of which `memory` is a shared mapping from offset 0, its holes are skipped. Hot frames of
// `apart` share no chunk with others, because some starts skip them.
Plan plan_chunks(std::span<const std::byte> memory, std::span<const std::uint32_t> ranks,
                 std::span<const std::uint32_t> hot_frames, int memory_fd = -1,
                 std::span<const tinykvm::FrameRun> apart = {});

// Frames of the pages in the plan's cold chunks, in order. If frames are renumbered in this order, each such chunk is
// one run.
std::vector<std::uint32_t> cold_order(const Plan& plan);

// Frames in the order of their chunks: `hot` as given, then those of cold chunks. If the image is renumbered this way,
// each chunk is one run of frames and can be mapped as a whole. `root` and `memory_fd` as for address_ranks() and
// plan_chunks().
std::vector<std::uint32_t> order_of_chunks(std::span<const std::byte> memory, std::uint64_t root,
                                           std::span<const std::uint32_t> hot, int memory_fd);

// Copies the pages of a planned chunk into `raw`.
void gather_pages(const ChunkInfo& chunk, std::span<const std::byte> memory, tinykvm::IoBuffer& raw);

} // namespace kvmserver
