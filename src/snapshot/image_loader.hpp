// An image that comes out of a snapshot file: the hot part at once, the rest when it is touched or behind.
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

class SnapshotLoader final : public tinykvm::ImageLoader {
public:
    // The image must outlive the loader's last use; the image holds the loader, not the other way round.
    // Chunks are taken from `cache` as far as they are there, unless the snapshot is too small for that, or
    // of an earlier kvmserver.
    SnapshotLoader(SnapshotReader reader, std::shared_ptr<const PageCache> cache, tinykvm::Image& image);

    void load(std::uint32_t frame) override;
    bool loaded(std::uint32_t frame) const override;
    bool is_hole(std::uint32_t frame) const override { return !reader_.chunk_of(frame); }
    // Loads chunks [first, last) of the file's order.
    void load_chunks(std::size_t first, std::size_t last, const std::atomic<bool>& stop);
    // From now on the cold chunks that are loaded are parts of the image in files of the cache, which are
    // made if need be. Nobody may write to the image's frames any more, but those that are loaded already, and by
    // Image::replace().
    void map_cold_chunks() { maps_ = caches_; }
    bool caches() const { return caches_; }
    void use_cache(std::shared_ptr<const PageCache> cache) { cache_ = std::move(cache); } // not while there are threads

    std::size_t chunks() const { return states_.size(); }
    std::size_t hot_chunks() const { return hot_; }
    // So many chunks from the first on hold all hot frames but these.
    std::size_t hot_chunks_without(std::span<const tinykvm::FrameRun> frames) const;
    std::uint32_t
    end_of(std::size_t chunks) const; // none of the first so many chunks fills that frame or one behind it
    std::size_t hot_from_cache() const { return hot_from_cache_; } // so far
    const SnapshotReader& reader() const { return reader_; }
    const PageCache& cache() const { return *cache_; }

private:
    enum State : std::uint8_t { absent, loading, present, failed };
    void load_chunk(std::size_t chunk);
    void fill(std::size_t chunk);
    // No descriptor: there is none. Once for each chunk.
    tinykvm::UniqueFd copy_of(std::size_t chunk);

    SnapshotReader reader_;
    std::shared_ptr<const PageCache> cache_;
    bool caches_, maps_ = false;
    tinykvm::Image& image_;
    std::vector<std::atomic<std::uint8_t>> states_;
    std::size_t hot_ = 0;
    std::once_flag asked_; // for the copies of all hot chunks at once
    std::vector<tinykvm::UniqueFd> hot_copies_;
    std::atomic<std::size_t> hot_from_cache_{0};
    std::mutex mutex_;
    std::condition_variable arrived_;
};

// Whether copies of the snapshot's chunks are worth their place, and can be called by what is in them.
bool worth_copies(const SnapshotReader& reader);

// The hot chunks that the cache has no copies of; and makes these, for as long as `go_on` says so before
// each. Throws UserError (bad_snapshot).
std::vector<std::size_t> hot_without_copies(const SnapshotReader& reader, const PageCache& cache);
void offer_chunks(const SnapshotReader& reader, const PageCache& cache, std::span<const std::size_t> chunks,
                  const std::function<bool()>& go_on);

} // namespace kvmserver
