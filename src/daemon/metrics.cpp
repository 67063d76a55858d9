#include "src/daemon/metrics.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>

namespace kvmserver::daemon {

namespace {

std::uint64_t next_id() {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
}

template <class Map>
void add_map(Map& to, const Map& from) {
    for (const auto& [key, value] : from)
        to[key] += value;
}

} // namespace

void Histogram::add(std::uint64_t us) {
    ++buckets[static_cast<std::size_t>(std::lower_bound(kLatencyBounds.begin(), kLatencyBounds.end(), us) -
                                       kLatencyBounds.begin())];
    ++count;
    sum_us += us;
}

void Histogram::add(const Histogram& other) {
    for (std::size_t i = 0; i < buckets.size(); ++i)
        buckets[i] += other.buckets[i];
    count += other.count;
    sum_us += other.sum_us;
}

void VersionMetrics::add(const VersionMetrics& other) {
    add_map(requests, other.requests);
    add_map(rejected, other.rejected);
    add_map(faults, other.faults);
    duration.add(other.duration);
    queue.add(other.queue);
    restore.add(other.restore);
    reset.add(other.reset);
    bytes_in += other.bytes_in;
    bytes_out += other.bytes_out;
    cold_starts += other.cold_starts;
    timeouts += other.timeouts;
    dirty_pages += other.dirty_pages;
    cpu_us += other.cpu_us;
}

Metrics::Metrics() : id_(next_id()) {}
Metrics::~Metrics() = default;

Metrics::Shard& Metrics::shard() {
    // Of this thread, for the object that it counts for: nearly always the same one.
    thread_local std::uint64_t owner = 0;
    thread_local std::shared_ptr<Shard> mine;
    if (owner != id_) {
        mine = std::make_shared<Shard>();
        owner = id_;
        const std::lock_guard lock(mutex_);
        shards_.push_back(mine); // stays when the thread ends: what it counted still counts
    }
    return *mine;
}

MetricsSnapshot Metrics::snapshot() const {
    MetricsSnapshot sum;
    const std::lock_guard lock(mutex_);
    for (const auto& shard : shards_) {
        const std::lock_guard shard_lock(shard->mutex);
        for (const auto& [key, metrics] : shard->versions)
            sum.versions[key].add(metrics);
    }
    return sum;
}

} // namespace kvmserver::daemon
