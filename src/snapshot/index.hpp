// The index of chunks: where each part of guest memory is in the file.
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

// `count` frames from `first` on are pages `page`... of the chunk.
struct ChunkRun {
    std::uint32_t first = 0, count = 0;
    std::uint32_t page = 0;
    bool operator==(const ChunkRun&) const = default;
};

// A chunk holds each different page once; frames with the same content have runs with the same pages.
struct ChunkInfo {
    std::vector<ChunkRun> runs; // every frame that loading the chunk fills
    std::uint64_t offset = 0;   // in the file
    std::uint32_t stored = 0;   // bytes in the file
    std::uint32_t pages = 0;    // once decompressed
    bool hot = false;
    Filter filter = Filter::none;
    format::Checksum checksum; // of the stored bytes
    // Of its pages, as they are in memory: what a copy of them is called by. Nothing in a snapshot of an
    // earlier kvmserver.
    std::optional<Digest> sha256;
    std::uint64_t raw_bytes() const { return std::uint64_t{pages} * 4096; }
    std::uint32_t frames() const; // that it fills
    bool operator==(const ChunkInfo&) const = default;
};

// All chunks have their SHA-256, or none has.
std::vector<std::byte> encode_index(std::span<const ChunkInfo> chunks);

// Throws FormatError unless the chunks' stored bytes add up to header.chunk_bytes, all runs lie in [0,
// frames) and in their chunk, no frame has two, and every page of a chunk is used.
std::vector<ChunkInfo> decode_index(std::span<const std::byte> bytes, const format::Header& header,
                                    std::uint32_t frames);

// Frame to chunk.
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
    static constexpr unsigned kBlockShift =
        8;                                    // a block of frames has few runs: a start asks for every page of an image
    std::vector<Run> runs_;                   // by first
    std::vector<std::uint32_t> before_block_; // runs that begin before the block, and before the end
};

} // namespace kvmserver
