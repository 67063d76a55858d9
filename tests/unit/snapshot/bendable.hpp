// A good snapshot's parts, for tests that bend one of them.
#pragma once
#include "src/snapshot/codec.hpp"
#include "tests/unit/snapshot/files.hpp"
#include "tests/unit/snapshot/sample_state.hpp"

namespace kvmserver::test {

inline constexpr std::uint32_t kFrames = 64;

// A snapshot of two chunks of eight pages that can be bent.
struct Sample {
    std::vector<ChunkInfo> chunks;
    std::vector<Bytes> stored;
    tinykvm::MachineState state = sample_state(kFrames);

    Sample() {
        for (std::uint32_t i = 0; i < 2; ++i) {
            Bytes raw(8 * 4096, static_cast<std::byte>(i + 1));
            add_chunk(compress_section(raw), 8);
            chunks.back().runs = {{i * 8 + 2, 8, 0}};
        }
    }

    void add_chunk(Bytes bytes, std::uint32_t pages) {
        ChunkInfo chunk;
        chunk.stored = static_cast<std::uint32_t>(bytes.size());
        chunk.pages = pages;
        chunk.checksum = format::checksum_of(bytes);
        chunks.push_back(chunk);
        stored.push_back(std::move(bytes));
    }

    Parts parts() const {
        Parts parts;
        for (const Bytes& bytes : stored)
            parts.chunks.insert(parts.chunks.end(), bytes.begin(), bytes.end());
        parts.metadata = encode_metadata({this_version(), state});
        parts.index = encode_index(chunks);
        parts.chunk_count = static_cast<std::uint32_t>(chunks.size());
        return parts;
    }
};

} // namespace kvmserver::test
