#include "src/snapshot/compressed_chunk_cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "src/snapshot/format.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver {

namespace {

// File format: the checksum of what follows, the SHA-256 of the pages, one byte for the filter, the stored bytes.
constexpr std::size_t kDigestAt = sizeof(format::Checksum), kFilterAt = kDigestAt + sizeof(Digest),
                      kStoredAt = kFilterAt + 1;

} // namespace

CompressedChunkCache::CompressedChunkCache(FolderCache cache, const Effort& effort)
    : cache_(std::move(cache)), usable_(effort.total_raw >= PageCache::kWorthBytes && cache_.usable()),
      effort_(effort) {}

std::string CompressedChunkCache::name_of(const Digest& sha256, bool hot) const {
    // What is compressed fast is the same at each effort.
    return is_fast(effort_, hot) ? fmt::format("{}-{}", sha256.hex(), effort_name({kQuickLevel, 0}))
                                 : fmt::format("{}-{}{}", sha256.hex(), effort_name(effort_), hot ? "-hot" : "");
}

std::optional<ChunkCompressor::Result> CompressedChunkCache::find(const Digest& sha256, bool hot) const {
    if (!usable_)
        return std::nullopt;
    const auto bytes = cache_.read(name_of(sha256, hot));
    if (!bytes || bytes->size() <= kStoredAt)
        return std::nullopt;
    const std::span all(*bytes);
    const auto filter = static_cast<Filter>(all[kFilterAt]);
    const auto is_at = [&all](const auto& value, std::size_t at) {
        return std::ranges::equal(std::as_bytes(std::span(value.bytes)), all.subspan(at, sizeof value));
    };
    if (!is_at(format::checksum_of(all.subspan(kDigestAt)), 0) || !is_at(sha256, kDigestAt) ||
        std::ranges::find(kFilters, filter) == kFilters.end())
        return std::nullopt;
    return ChunkCompressor::Result{filter, {bytes->begin() + kStoredAt, bytes->end()}};
}

void CompressedChunkCache::keep(const Digest& sha256, bool hot, const ChunkCompressor::Result& result) const {
    if (!usable_)
        return;
    std::vector<std::byte> bytes(kStoredAt + result.stored.size());
    const std::span all(bytes);
    std::ranges::copy(std::as_bytes(std::span(sha256.bytes)), all.begin() + kDigestAt);
    bytes[kFilterAt] = static_cast<std::byte>(result.filter);
    std::ranges::copy(result.stored, all.begin() + kStoredAt);
    const format::Checksum checksum = format::checksum_of(all.subspan(kDigestAt));
    std::ranges::copy(std::as_bytes(std::span(checksum.bytes)), all.begin());
    cache_.write(name_of(sha256, hot), bytes);
}

} // namespace kvmserver
