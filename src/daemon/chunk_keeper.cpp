#include "src/daemon/chunk_keeper.hpp"

#include <chrono>
#include <utility>

#include "src/store/snapshots/bucket_chunks.hpp"

namespace kvmserver::daemon {
namespace {

constexpr std::chrono::seconds kRound{2}; // the cache may be too large for so long

} // namespace

ChunkKeeper::ChunkKeeper(std::filesystem::path store, std::shared_ptr<store::ChunkBucket> bucket,
                         std::uint64_t cache_bytes, std::function<void(const std::string&)> note)
    : path_(std::move(store)), bucket_(std::move(bucket)), cache_bytes_(cache_bytes), note_(std::move(note)),
      thread_([this] { loop(); }) {}

ChunkKeeper::~ChunkKeeper() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

bool ChunkKeeper::stopped() {
    const std::lock_guard lock(mutex_);
    return stop_;
}

void ChunkKeeper::loop() {
    std::unique_ptr<store::Store> store; // a connection of its own: requests do not wait for it
    while (!stopped()) {
        try {
            if (!store)
                store = std::make_unique<store::Store>(path_, store::StoreOptions{.bucket = bucket_});
            if (const std::int64_t version = store->data_version(); version != seen_) {
                store::upload_older(
                    *store, [this] { return stopped(); }, note_);
                seen_ = version;
            }
            said_.clear();
        } catch (const std::exception& error) { // tried again
            if (said_ != error.what())
                note_(std::string("chunks that were deployed before are not in the bucket yet: ") + error.what());
            said_ = error.what();
        }
        try {
            if (store && cache_bytes_ != 0)
                store::shrink_cache(*store, cache_bytes_);
        } catch (const std::exception& error) {
            if (said_ != error.what())
                note_(std::string("the cache of chunks is not made smaller: ") + error.what());
            said_ = error.what();
        }
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, kRound, [this] { return stop_; });
    }
}

} // namespace kvmserver::daemon
