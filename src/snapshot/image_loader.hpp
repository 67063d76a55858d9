// Loads an image from a snapshot file: hot chunks at once, cold chunks on access or in the background.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "src/snapshot/page_cache.hpp"
#include "src/snapshot/reader.hpp"
#include "tinykvm/memory/image.hpp"

namespace kvmserver {

// Any number of threads may load at once; each chunk is loaded once.
class SnapshotLoader final : public tinykvm::ImageLoader {
public:
    // `image` must outlive the loader's last use (the image owns the loader, not vice versa). Chunks are taken from
    // `cache` if they are there, unless the snapshot is too small for that or made by an earlier kvmserver.
    SnapshotLoader(SnapshotReader reader, std::shared_ptr<const PageCache> cache, tinykvm::Image& image);

    void load(std::uint32_t frame) override;
    tinykvm::FramePresence presence(std::uint32_t frame) const override;
    void leave_out(std::uint32_t first, std::uint32_t count) override;
    // Loads chunks [first, last) in the file's order, until `stop` is set.
    void load_chunks(std::size_t first, std::size_t last, const std::atomic<bool>& stop);
    // From now on, cold chunks are loaded by mapping files of the cache, which are created if necessary. After that
    // nobody may write to the image's frames, except to those already loaded, and through Image::replace().
    void map_cold_chunks() { maps_ = caches_; }
    bool caches() const { return caches_; }
    // Puts the cache's copies of the first `chunks` chunks, which are loaded, in place of the image's own memory, where
    // these hold the same bytes: processes with equal pages then have them once. Leaves out the frames of `own`. Call
    // it again, not at the same time, for copies that the cache did not have, or if the image had clones.
    void share_hot(std::size_t chunks, std::span<const tinykvm::FrameRun> own);
    // Call only while no other thread uses the loader.
    void use_cache(std::shared_ptr<const PageCache> cache) { cache_ = std::move(cache); }

    std::size_t chunks() const { return states_.size(); }
    std::size_t hot_chunks() const { return hot_; }
    // Number of leading chunks that cover all hot frames except `frames`.
    std::size_t hot_chunks_without(std::span<const tinykvm::FrameRun> frames) const;
    // End (exclusive) of the frames that the first `chunks` chunks fill.
    std::uint32_t end_of(std::size_t chunks) const;
    std::size_t hot_from_cache() const { return hot_from_cache_; } // chunks taken from the cache so far
    const SnapshotReader& reader() const { return reader_; }
    const PageCache& cache() const { return *cache_; }

private:
    enum State : std::uint8_t { absent, loading, present, failed };
    bool left_out(std::uint32_t frame) const { return frame < left_out_.size() && left_out_[frame]; }
    // The runs of a chunk without frames that are left out.
    std::vector<ChunkRun> runs_of(const ChunkInfo& chunk) const;
    void load_chunk(std::size_t chunk);
    void fill(std::size_t chunk);
    // Returns an empty descriptor when the cache has no copy. Call once for each chunk.
    tinykvm::UniqueFd copy_of(std::size_t chunk);

    SnapshotReader reader_;
    std::shared_ptr<const PageCache> cache_;
    bool caches_, maps_ = false;
    tinykvm::Image& image_;
    std::vector<std::atomic<std::uint8_t>> states_;
    std::size_t hot_ = 0;
    std::vector<bool> left_out_; // by frame; empty if none is
    std::once_flag asked_;       // requests the copies of all hot chunks at once
    std::vector<tinykvm::UniqueFd> hot_copies_;
    std::atomic<std::size_t> hot_from_cache_{0};
    std::vector<bool> shared_; // by hot chunk: share_hot() has done what it can
    std::mutex mutex_;
    std::condition_variable arrived_;
};

// Whether the snapshot is large enough to cache its chunks, and has their digests.
bool worth_copies(const SnapshotReader& reader);

// Hot chunks that have no copy in the cache.
std::vector<std::size_t> hot_without_copies(const SnapshotReader& reader, const PageCache& cache);
// Offers copies of `chunks` to the cache. Calls `may_continue` before each and stops when it returns false. Throws
// UserError (bad_snapshot).
void offer_chunks(const SnapshotReader& reader, const PageCache& cache, std::span<const std::size_t> chunks,
                  const std::function<bool()>& may_continue);

} // namespace kvmserver
