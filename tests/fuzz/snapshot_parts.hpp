// Snapshot files for the fuzzer: good ones, and such with any part of it made otherwise and right checksums.
#pragma once
#include <zstd.h>

#include <cstdint>
#include <span>
#include <vector>

#include "src/snapshot/codec.hpp"
#include "src/snapshot/format.hpp"
#include "src/snapshot/index.hpp"
#include "src/snapshot/metadata.hpp"
#include "tests/unit/snapshot/sample_state.hpp"

namespace fuzz {

using namespace kvmserver;
using Bytes = std::vector<std::byte>;

inline constexpr std::uint32_t kFrames = 32;
inline constexpr unsigned kKinds = 5;

// Quick, where compress_section() is thorough.
inline Bytes compressed(const Bytes& bytes) {
    static ZSTD_CCtx* const context = ZSTD_createCCtx();
    Bytes out(ZSTD_compressBound(bytes.size()));
    out.resize(ZSTD_compressCCtx(context, out.data(), out.size(), bytes.data(), bytes.size(), 1));
    return out;
}

// As a deploy in a hurry does it.
inline Bytes hurried(const Bytes& pages) {
    return ChunkCompressor({kQuickLevel, pages.size()}).compress(pages, false).stored;
}

struct Section {
    explicit Section(const Bytes& bytes) : raw(bytes.size()), stored(compressed(bytes)) {}
    std::size_t raw;
    Bytes stored;
};

inline Bytes assemble(const Bytes& chunk, const Section& metadata, const Section& index) {
    format::Header header;
    header.prefix.guest_abi = 7;
    header.chunks = 1;
    header.chunk_bytes = chunk.size();
    header.metadata = {metadata.stored.size(), metadata.raw, format::checksum_of(metadata.stored)};
    header.index = {index.stored.size(), index.raw, format::checksum_of(index.stored)};
    header.prefix.file_bytes = header.index_at() + index.stored.size();
    const auto head = format::encode(header);
    Bytes file(head.begin(), head.end());
    for (const Bytes* part : {&chunk, &metadata.stored, &index.stored})
        file.insert(file.end(), part->begin(), part->end());
    return file;
}

inline Bytes index_of(const Bytes& chunk, std::uint32_t pages, std::vector<ChunkRun> runs,
                      Filter filter = Filter::none) {
    ChunkInfo info;
    info.stored = static_cast<std::uint32_t>(chunk.size());
    info.pages = pages;
    info.runs = std::move(runs);
    info.filter = filter;
    info.checksum = format::checksum_of(chunk);
    return encode_index(std::span(&info, 1));
}

struct Good {
    Bytes chunk = compressed(Bytes(4 * 4096, std::byte{5}));
    Bytes metadata = encode_metadata({this_version(), test::sample_state(kFrames)});
    Bytes index = index_of(chunk, 4, {{3, 4, 0}, {20, 2, 1}});
    Section stored_metadata{metadata}, stored_index{index};
    Bytes file = assemble(chunk, stored_metadata, stored_index);
};

inline const Good& good() {
    static const Good parts;
    return parts;
}

// `kind`: what the input stands for; the rest is good.
inline Bytes file_for(unsigned kind, Bytes input) {
    const Filter filter = kFilters[kind / kKinds % kFilters.size()];
    switch (kind % kKinds) {
    case 0: return input;
    case 1: return assemble(good().chunk, Section(input), good().stored_index);
    case 2: return assemble(good().chunk, good().stored_metadata, Section(input));
    case 3: // a chunk as stored
        return assemble(input, good().stored_metadata, Section(index_of(input, 1, {{3, 1, 0}}, filter)));
    default: { // its pages
        input.resize(4096);
        const Bytes chunk = filter == Filter::none ? hurried(input) : compressed(input);
        return assemble(chunk, good().stored_metadata, Section(index_of(chunk, 1, {{3, 1, 0}}, filter)));
    }
    }
}

} // namespace fuzz
