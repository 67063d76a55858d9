#include "src/snapshot/index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "src/snapshot/bytes.hpp"
#include "src/snapshot/index_entry.hpp"

namespace kvmserver {

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
            out.put(std::as_bytes(std::span(chunk.sha256->bytes)));
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
        std::vector<ChunkRun> runs;
        chunks.push_back(decode_entry(in, i, frames, [&](const ChunkRun& run) { runs.push_back(run); }));
        chunks.back().runs = std::move(runs);
        chunks.back().offset = offset;
        if (chunks.back().stored > end - offset)
            bad_entry(i, "is longer than the file");
        offset += chunks.back().stored;
    }
    if (in.left() == std::size_t{header.chunks} * sizeof(Digest)) { // digests are missing in files of earlier versions
        for (ChunkInfo& chunk : chunks)
            std::memcpy(chunk.sha256.emplace().bytes.data(), in.take(sizeof(Digest)).data(), sizeof(Digest));
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
