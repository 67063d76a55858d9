// The index of chunks: where in the file each part of guest memory is.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "src/common/digest.hpp"
#include "src/snapshot/filter.hpp"
#include "src/snapshot/format.hpp"

namespace kvmserver {

// Frames `first` to `first` + `count` - 1 hold the chunk's pages from `page` on.
struct ChunkRun {
    std::uint32_t first = 0, count = 0;
    std::uint32_t page = 0;
    bool operator==(const ChunkRun&) const = default;
};

// A chunk holds each distinct page once; frames with equal content have runs with the same pages.
struct ChunkInfo {
    std::vector<ChunkRun> runs; // all frames that loading the chunk fills
    std::uint64_t offset = 0;   // in the file
    std::uint32_t stored = 0;   // bytes in the file
    std::uint32_t pages = 0;    // once decompressed
    bool hot = false;
    Filter filter = Filter::none;
    format::Checksum checksum; // of the stored bytes
    // Digest of the unpacked pages, which names copies of them. nullopt in snapshots of earlier kvmservers.
    std::optional<Digest> sha256;
    std::uint64_t raw_bytes() const { return std::uint64_t{pages} * 4096; }
    std::uint32_t frames() const; // number of frames that the chunk fills
    bool operator==(const ChunkInfo&) const = default;
};

// Either all chunks have their SHA-256 or none.
std::vector<std::byte> encode_index(std::span<const ChunkInfo> chunks);

// Throws FormatError unless the chunks' stored bytes add up to header.chunk_bytes, all runs lie in [0, frames) and in
// their chunk, no frame is filled twice, and every page of a chunk is used.
std::vector<ChunkInfo> decode_index(std::span<const std::byte> bytes, const format::Header& header,
                                    std::uint32_t frames);

// Maps frames to chunks.
class FrameMap {
public:
    FrameMap() = default;
    // Throws FormatError when a frame is in two runs.
    explicit FrameMap(std::span<const ChunkInfo> chunks);
    std::optional<std::uint32_t> find(std::uint32_t frame) const;

private:
    struct Run {
        std::uint32_t first, count, chunk;
    };
    // A block of 256 frames has few runs. Lookup must be fast: a start asks for every page of an image.
    static constexpr unsigned kBlockShift = 8;
    std::vector<Run> runs_;                   // sorted by first frame
    std::vector<std::uint32_t> before_block_; // for each block, and for the end: number of runs that begin before it
};

} // namespace kvmserver
