#include "src/snapshot/index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "src/snapshot/bytes.hpp"

namespace kvmserver {

namespace {

constexpr std::size_t kEntryBytes = 28;
constexpr std::size_t kRunBytes = 12;

[[noreturn]] void bad(std::size_t chunk, const char* why) {
    throw FormatError(fmt::format("index is inconsistent: chunk {} {}", chunk, why));
}

ChunkInfo decode_chunk(ByteReader& in, std::size_t number, std::uint32_t frames) {
    ChunkInfo chunk;
    chunk.stored = in.get<std::uint32_t>();
    chunk.pages = in.get<std::uint16_t>();
    const auto hot = in.get<std::uint8_t>();
    const auto filter = in.get<std::uint8_t>();
    const auto runs = in.get<std::uint32_t>();
    std::memcpy(chunk.checksum.bytes.data(), in.take(16).data(), 16);
    if (hot > 1 || filter >= kFilters.size())
        bad(number, "has flags that are not known");
    if (chunk.stored == 0 || chunk.pages == 0 || chunk.pages > format::kMaxChunkPages)
        bad(number, "has an impossible size");
    if (runs > in.left() / kRunBytes)
        bad(number, "has too many runs");
    chunk.hot = hot != 0;
    chunk.filter = static_cast<Filter>(filter);
    chunk.runs.reserve(runs);
    std::vector<bool> used(chunk.pages);
    for (std::uint32_t i = 0; i < runs; ++i) {
        ChunkRun run;
        run.first = in.get<std::uint32_t>();
        run.count = in.get<std::uint32_t>();
        run.page = in.get<std::uint32_t>();
        if (run.count == 0 || run.count > chunk.pages || run.page > chunk.pages - run.count)
            bad(number, "has a run outside of its pages");
        if (run.first >= frames || run.count > frames - run.first)
            bad(number, "has a run outside of guest memory");
        std::fill_n(used.begin() + run.page, run.count, true);
        chunk.runs.push_back(run);
    }
    if (std::find(used.begin(), used.end(), false) != used.end())
        bad(number, "has pages that belong nowhere");
    return chunk;
}

} // namespace

std::uint32_t ChunkInfo::frames() const {
    std::uint32_t sum = 0;
    for (const ChunkRun& run : runs)
        sum += run.count;
    return sum;
}

std::vector<std::byte> encode_index(std::span<const ChunkInfo> chunks) {
    ByteWriter out;
    for (const ChunkInfo& chunk : chunks) {
        out.put(chunk.stored);
        out.put(static_cast<std::uint16_t>(chunk.pages));
        out.put(static_cast<std::uint8_t>(chunk.hot));
        out.put(static_cast<std::uint8_t>(chunk.filter));
        out.put(static_cast<std::uint32_t>(chunk.runs.size()));
        out.put(std::as_bytes(std::span(chunk.checksum.bytes)));
        for (const ChunkRun& run : chunk.runs) {
            out.put(run.first);
            out.put(run.count);
            out.put(run.page);
        }
    }
    for (const ChunkInfo& chunk : chunks)
        if (chunk.sha256)
            out.put(std::as_bytes(std::span(*chunk.sha256)));
    return std::move(out).take();
}

std::vector<ChunkInfo> decode_index(std::span<const std::byte> bytes, const format::Header& header,
                                    std::uint32_t frames) {
    if (header.chunks > bytes.size() / kEntryBytes)
        throw FormatError("index is inconsistent: it is too short");
    std::vector<ChunkInfo> chunks;
    chunks.reserve(header.chunks);
    ByteReader in(bytes, "index");
    std::uint64_t offset = format::kHeaderBytes;
    const std::uint64_t end = header.metadata_at();
    for (std::uint32_t i = 0; i < header.chunks; ++i) {
        chunks.push_back(decode_chunk(in, i, frames));
        chunks.back().offset = offset;
        if (chunks.back().stored > end - offset)
            bad(i, "is longer than the file");
        offset += chunks.back().stored;
    }
    if (in.left() == std::size_t{header.chunks} * sizeof(Sha256)) { // none: of an earlier kvmserver
        for (ChunkInfo& chunk : chunks)
            std::memcpy(chunk.sha256.emplace().data(), in.take(sizeof(Sha256)).data(), sizeof(Sha256));
    } else if (in.left() != 0) {
        throw FormatError("index is inconsistent: it is too long");
    }
    if (offset != end)
        throw FormatError("index is inconsistent: its chunks do not make up the file");
    return chunks;
}

FrameMap::FrameMap(std::span<const ChunkInfo> chunks) {
    for (std::size_t i = 0; i < chunks.size(); ++i)
        for (const ChunkRun& run : chunks[i].runs)
            runs_.push_back({run.first, run.count, static_cast<std::uint32_t>(i)});
    std::sort(runs_.begin(), runs_.end(), [](const Run& a, const Run& b) { return a.first < b.first; });
    for (std::size_t i = 1; i < runs_.size(); ++i)
        if (runs_[i].first - runs_[i - 1].first < runs_[i - 1].count)
            throw FormatError(fmt::format("index is inconsistent: frame {} is stored twice", runs_[i].first));
    before_block_.resize(runs_.empty() ? 1 : (runs_.back().first >> kBlockShift) + 2);
    for (const Run& run : runs_)
        ++before_block_[(run.first >> kBlockShift) + 1];
    std::partial_sum(before_block_.begin(), before_block_.end(), before_block_.begin());
}

std::optional<std::uint32_t> FrameMap::find(std::uint32_t frame) const {
    if (runs_.empty())
        return std::nullopt;
    const std::size_t block = std::min<std::size_t>(frame >> kBlockShift, before_block_.size() - 2);
    auto run = std::upper_bound(runs_.begin() + before_block_[block], runs_.begin() + before_block_[block + 1], frame,
                                [](std::uint32_t f, const Run& r) { return f < r.first; });
    if (run == runs_.begin())
        return std::nullopt;
    --run;
    return frame - run->first < run->count ? std::optional(run->chunk) : std::nullopt;
}

} // namespace kvmserver
