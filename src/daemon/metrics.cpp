#include "src/daemon/metrics.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>

namespace kvmserver::daemon {

namespace {

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
    add_map(connections, other.connections);
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

std::uint64_t VersionMetrics::failed() const {
    std::uint64_t failed = 0;
    for (const auto& [status, count] : requests)
        failed += status == 0 || status >= 500 ? count : 0;
    for (const auto& [outcome, count] : connections)
        failed += outcome == "ok" || outcome == "client_gone" ? 0 : count;
    return failed;
}

std::size_t Metrics::shard_of_this_thread() {
    static std::atomic<std::size_t> threads{0};
    thread_local const std::size_t mine = threads++ % kShards;
    return mine;
}

MetricsSnapshot Metrics::snapshot() const {
    MetricsSnapshot sum;
    for (const Shard& shard : shards_) {
        const std::lock_guard lock(shard.mutex);
        for (const auto& [key, metrics] : shard.versions)
            sum.versions[key].add(metrics);
    }
    return sum;
}

} // namespace kvmserver::daemon
