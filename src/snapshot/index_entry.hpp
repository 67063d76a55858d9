// Decodes one chunk's entry of the index from any source of bytes with ByteReader's functions get, take and left.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "src/snapshot/index.hpp"

namespace kvmserver {

inline constexpr std::size_t kEntryBytes = 28, kRunBytes = 12;

[[noreturn]] inline void bad_entry(std::size_t chunk, const char* why) {
    throw FormatError(fmt::format("index is inconsistent: chunk {} {}", chunk, why));
}

// Passes each run to `each_run`; does not set the chunk's runs and offset. Throws FormatError.
template <class Bytes, class EachRun>
ChunkInfo decode_entry(Bytes& in, std::size_t number, std::uint32_t frames, const EachRun& each_run) {
    ChunkInfo chunk;
    chunk.stored = in.template get<std::uint32_t>();
    chunk.pages = in.template get<std::uint16_t>();
    const auto hot = in.template get<std::uint8_t>();
    const auto filter = in.template get<std::uint8_t>();
    const auto runs = in.template get<std::uint32_t>();
    std::memcpy(chunk.checksum.bytes.data(), in.take(16).data(), 16);
    if (hot > 1 || filter >= kFilters.size())
        bad_entry(number, "has flags that are not known");
    if (chunk.stored == 0 || chunk.pages == 0 || chunk.pages > format::kMaxChunkPages)
        bad_entry(number, "has an impossible size");
    if (runs > in.left() / kRunBytes)
        bad_entry(number, "has too many runs");
    chunk.hot = hot != 0;
    chunk.filter = static_cast<Filter>(filter);
    std::vector<bool> used(chunk.pages);
    for (std::uint32_t i = 0; i < runs; ++i) {
        ChunkRun run;
        run.first = in.template get<std::uint32_t>();
        run.count = in.template get<std::uint32_t>();
        run.page = in.template get<std::uint32_t>();
        if (run.count == 0 || run.count > chunk.pages || run.page > chunk.pages - run.count)
            bad_entry(number, "has a run outside of its pages");
        if (run.first >= frames || run.count > frames - run.first)
            bad_entry(number, "has a run outside of guest memory");
        std::fill_n(used.begin() + run.page, run.count, true);
        each_run(run);
    }
    if (std::find(used.begin(), used.end(), false) != used.end())
        bad_entry(number, "has pages that belong nowhere");
    return chunk;
}

} // namespace kvmserver
