// Which files of chunks have been read and found intact, so that a deploy of what is there anyway need not read them
// again.
#pragma once
#include <chrono>
#include <map>
#include <mutex>

#include "src/common/digest.hpp"
#include "src/common/file_stamp.hpp"

namespace kvmserver::store {

// A file that was read is known for an hour: a disk can lose bytes without a write. Thread-safe.
class CheckedChunks {
public:
    using Clock = std::chrono::steady_clock;
    static constexpr auto kKept = std::chrono::hours(1);

    bool knows(const Digest& chunk, const FileStamp& file, Clock::time_point now = Clock::now()) const;
    // `file` as it was before it was read. Ignored while it is not settled.
    void note(const Digest& chunk, const FileStamp& file, Clock::time_point now = Clock::now());

private:
    struct Seen {
        FileStamp file;
        Clock::time_point at;
    };
    mutable std::mutex mutex_;
    std::map<Digest, Seen> seen_; // guarded by mutex_
};

} // namespace kvmserver::store
