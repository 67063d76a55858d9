#include "src/store/snapshots/checked_chunks.hpp"

namespace kvmserver::store {

bool CheckedChunks::knows(const Digest& chunk, const FileStamp& file, Clock::time_point now) const {
    const std::lock_guard lock(mutex_);
    const auto seen = seen_.find(chunk);
    return seen != seen_.end() && seen->second.file == file && now - seen->second.at < kKept;
}

void CheckedChunks::note(const Digest& chunk, const FileStamp& file, Clock::time_point now) {
    constexpr std::size_t kMost = 1 << 16; // in 8 MiB or so
    if (!file.settled())
        return;
    const std::lock_guard lock(mutex_);
    if (seen_.size() >= kMost)
        seen_.clear();
    seen_.insert_or_assign(chunk, Seen{file, now});
}

} // namespace kvmserver::store
