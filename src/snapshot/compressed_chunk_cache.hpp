// Cache of compressed chunks in the cache folder. A snapshot that differs little from an earlier one (the next version
// of a function) only needs the time of compression for its new chunks.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "src/common/digest.hpp"
#include "src/snapshot/codec.hpp"
#include "src/snapshot/folder_cache.hpp"

namespace kvmserver {

// Serves snapshots made with the same effort. Any number of threads may use it.
class CompressedChunkCache {
public:
    CompressedChunkCache(FolderCache cache, const Effort& effort);

    // What was kept for the pages with this digest; nullopt when that is nothing, or has been altered since. (Whoever
    // may write into the folder, who is the user, could forge it: an import into a store unpacks what is new to it.)
    std::optional<ChunkCompressor::Result> find(const Digest& sha256, bool hot) const;
    void keep(const Digest& sha256, bool hot, const ChunkCompressor::Result& result) const;

private:
    std::string name_of(const Digest& sha256, bool hot) const;

    FolderCache cache_;
    bool usable_;
    Effort effort_;
};

} // namespace kvmserver
