#include "src/snapshot/compressed_chunk_cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tinykvm/base/text.hpp"

namespace kvmserver {

// File format: one byte for the filter, then the stored bytes.

CompressedChunkCache::CompressedChunkCache(FolderCache cache, const Effort& effort)
    : cache_(std::move(cache)), usable_(effort.total_raw >= PageCache::kWorthBytes && cache_.usable()),
      effort_(effort) {}

std::string CompressedChunkCache::name_of(const Digest& sha256, bool hot) const {
    return fmt::format("{}-{}{}", sha256.hex(), effort_name(effort_), hot ? "-hot" : "");
}

std::optional<ChunkCompressor::Result> CompressedChunkCache::find(std::span<const std::byte> raw, const Digest& sha256,
                                                                  bool hot) const {
    if (!usable_ || is_fast(effort_, hot))
        return std::nullopt;
    const auto bytes = cache_.read(name_of(sha256, hot));
    if (!bytes || bytes->empty())
        return std::nullopt;
    const auto filter = static_cast<Filter>(bytes->front());
    if (std::ranges::find(kFilters, filter) == kFilters.end())
        return std::nullopt;
    ChunkCompressor::Result result{filter, {bytes->begin() + 1, bytes->end()}};
    std::vector<std::byte> filtered(raw.size());
    if (!decompress(result.stored, filtered))
        return std::nullopt;
    std::vector<std::byte> back(filter == Filter::none ? 0 : raw.size());
    if (filter != Filter::none)
        undo_filter(filter, filtered, back.data());
    return std::ranges::equal(filter == Filter::none ? filtered : back, raw) ? std::optional(std::move(result))
                                                                             : std::nullopt;
}

void CompressedChunkCache::keep(const Digest& sha256, bool hot, const ChunkCompressor::Result& result) const {
    if (!usable_ || is_fast(effort_, hot))
        return;
    std::vector<std::byte> bytes(1 + result.stored.size());
    bytes[0] = static_cast<std::byte>(result.filter);
    std::ranges::copy(result.stored, bytes.begin() + 1);
    cache_.write(name_of(sha256, hot), bytes);
}

} // namespace kvmserver
