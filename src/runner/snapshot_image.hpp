// An image that comes out of a snapshot file: the hot part at once, the rest when it is touched or behind.
#pragma once
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "src/snapshot/reader.hpp"
#include "src/snapshot/unpacked.hpp"
#include "tinykvm/memory/image.hpp"

namespace kvmserver {

class SnapshotLoader final : public tinykvm::ImageLoader {
public:
    // The image must outlive the loader's last use; the image holds the loader, not the other way round.
    // Chunks are taken from `cache` as far as they are there, unless the snapshot is too small for that.
    SnapshotLoader(SnapshotReader reader, UnpackedCache cache, tinykvm::Image& image);

    void load(std::uint32_t frame) override;
    bool loaded(std::uint32_t frame) const override;
    bool is_hole(std::uint32_t frame) const override { return !reader_.chunk_of(frame); }
    // Loads chunks [first, last) of the file's order.
    void load_chunks(std::size_t first, std::size_t last, const std::atomic<bool>& stop);
    // From now on the cold chunks that are loaded are parts of the image in files of the cache, which are
    // made if need be. Nobody may write to the image's frames any more, but those that are loaded already, and by Image::replace().
    void map_cold_chunks() { maps_ = caches_; }
    bool caches() const { return caches_; }

    std::size_t chunks() const { return states_.size(); }
    std::size_t hot_chunks() const { return hot_; }
    // So many chunks from the first on hold all hot frames but these.
    std::size_t hot_chunks_without(std::span<const tinykvm::FrameRun> frames) const;
    std::uint32_t end_of(std::size_t chunks) const; // none of the first so many chunks fills that frame or one behind it
    std::size_t hot_from_cache() const { return hot_from_cache_; } // so far
    const SnapshotReader& reader() const { return reader_; }
    const UnpackedCache& cache() const { return cache_; }

private:
    enum State : std::uint8_t { absent, loading, present, failed };
    void load_chunk(std::size_t chunk);
    void fill(std::size_t chunk);

    SnapshotReader reader_;
    UnpackedCache cache_;
    bool caches_, maps_ = false;
    tinykvm::Image& image_;
    std::vector<std::atomic<std::uint8_t>> states_;
    std::size_t hot_ = 0;
    std::atomic<std::size_t> hot_from_cache_{0};
    std::mutex mutex_;
    std::condition_variable arrived_;
};

// Makes the copies of the hot chunks that are not there yet, if the snapshot is worth it; returns whether it is. Throws UserError
// (bad_snapshot).
bool keep_hot_part(const SnapshotReader& reader, const UnpackedCache& cache);

} // namespace kvmserver
