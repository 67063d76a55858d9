#include "src/store/snapshots/chunk_bucket.hpp"

namespace kvmserver::store {

void ChunkBucket::note_use(const Digest& chunk) {
    constexpr std::size_t kMost = 1 << 20;
    const std::lock_guard lock(uses_mutex_);
    if (uses_.size() >= kMost)
        uses_.clear();
    uses_[chunk] = ++now_;
}

std::uint64_t ChunkBucket::last_use(const Digest& chunk) const {
    const std::lock_guard lock(uses_mutex_);
    const auto at = uses_.find(chunk);
    return at == uses_.end() ? 0 : at->second;
}

} // namespace kvmserver::store
