// Behind the requests: brings chunks to the bucket that were deployed before there was one, and keeps the disk's cache
// of chunks small.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "src/store/snapshots/chunk_bucket.hpp"
#include "src/store/store.hpp"

namespace kvmserver::daemon {

class ChunkKeeper {
public:
    // Begins at once, on a thread of its own. `cache_bytes`: 0 is no limit. `note` gets lines for the log, on several
    // threads.
    ChunkKeeper(std::filesystem::path store, std::shared_ptr<store::ChunkBucket> bucket, std::uint64_t cache_bytes,
                std::function<void(const std::string&)> note);
    ~ChunkKeeper();
    ChunkKeeper(const ChunkKeeper&) = delete;
    ChunkKeeper& operator=(const ChunkKeeper&) = delete;

private:
    void loop();
    bool stopped();

    const std::filesystem::path path_;
    const std::shared_ptr<store::ChunkBucket> bucket_;
    const std::uint64_t cache_bytes_;
    const std::function<void(const std::string&)> note_;
    std::int64_t seen_ = -1; // Store::data_version of the last upload; of the thread, as is:
    std::string said_;       // the last error, which is not repeated
    std::mutex mutex_;
    std::condition_variable changed_;
    bool stop_ = false; // guarded by mutex_
    std::thread thread_;
};

} // namespace kvmserver::daemon
