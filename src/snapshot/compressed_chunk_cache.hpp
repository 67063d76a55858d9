// Chunks as they were compressed before, kept in the cache folder: of a snapshot that is nearly the one
// before (the next version of a function) only what is new needs the time that hard compression takes.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "src/common/digest.hpp"
#include "src/snapshot/codec.hpp"
#include "src/snapshot/folder_cache.hpp"

namespace kvmserver {

// Of snapshots made with the same effort. Any number of threads may use it.
class CompressedChunkCache {
public:
    CompressedChunkCache(FolderCache cache, const Effort& effort);

    // What compressing gave, proven to decompress to `raw`; nothing when it is not known.
    // `sha256`: of `raw`.
    std::optional<ChunkCompressor::Result> find(std::span<const std::byte> raw, const Digest& sha256, bool hot) const;
    void keep(const Digest& sha256, bool hot, const ChunkCompressor::Result& result) const;

private:
    std::string name_of(const Digest& sha256, bool hot) const;

    FolderCache cache_;
    bool usable_;
    Effort effort_;
};

} // namespace kvmserver
