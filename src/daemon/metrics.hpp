// The daemon's counters. They are sharded by thread; a snapshot adds them up.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "src/tracing/span_counts.hpp"

namespace kvmserver::daemon {

// Upper bounds in microseconds; a last bucket counts larger values. Buckets are not cumulative.
inline constexpr std::array<std::uint64_t, 19> kLatencyBounds{
    100,     250,     500,       1'000,     2'500,     5'000,      10'000,     25'000,     50'000,     100'000,
    250'000, 500'000, 1'000'000, 2'500'000, 5'000'000, 10'000'000, 30'000'000, 60'000'000, 300'000'000};

struct Histogram {
    std::array<std::uint64_t, kLatencyBounds.size() + 1> buckets{};
    std::uint64_t count = 0, sum_us = 0;
    void add(std::uint64_t us);
    void add(const Histogram& other);
};

// Counters of one version of a function. ("", 0) counts requests without a route, or that were not valid requests.
struct VersionMetrics {
    std::map<unsigned, std::uint64_t> requests;       // by status; 0: the client got none
    std::map<std::string, std::uint64_t> connections; // of a TCP function, by outcome (request::log_word)
    Histogram duration, queue, restore, reset;
    std::uint64_t bytes_in = 0, bytes_out = 0;
    std::uint64_t cold_starts = 0; // requests that waited for a process to be restored
    std::uint64_t timeouts = 0;
    std::uint64_t dirty_pages = 0;                 // restored or dropped by resets
    std::uint64_t cpu_us = 0;                      // of machines, while they served
    std::map<std::string, std::uint64_t> rejected; // queue-full, queue-timeout, not-live, not-restored, ...
    std::map<std::string, std::uint64_t> faults;   // program-failed, out-of-memory, worker-died, ...
    void add(const VersionMetrics& other);
    // Requests with status 500 or more, or without a reply; connections that neither the program nor the client ended.
    std::uint64_t failed() const;
};

// Of the bucket of `serve --chunks`, since the daemon started.
struct ChunkCounts {
    std::uint64_t sent = 0, fetched = 0; // bytes
    std::uint64_t failures = 0;          // requests, each after some tries
};

// Of the index of `serve --cluster`.
struct ClusterState {
    bool followed = false;     // what other daemons change comes at once
    std::int64_t revision = 0; // up to which all is copied
    bool drained = false;      // this node is
    bool refuses = false;      // functions are not served: etcd is away too long
};

struct MetricsSnapshot {
    std::map<std::pair<std::string, std::uint64_t>, VersionMetrics> versions; // by function and version
    std::uint64_t in_flight = 0, connections = 0, open_connections = 0;       // of the public listener
    std::uint64_t open_tcp_connections = 0;                                   // of TCP functions
    std::uint64_t started_ms = 0;                                             // when the daemon started, since 1970
    std::uint64_t given_back = 0;                                             // machines, for lack of memory
    std::optional<tracing::SpanCounts> spans;                                 // nothing: requests are not traced
    std::optional<ClusterState> cluster;                                      // nothing: the store is in none
    std::optional<ChunkCounts> chunks;                                        // nothing: there is no bucket
    // Of the public listener, seconds since 1970: of the files (nothing: there are none), and of the store, by name.
    std::optional<std::int64_t> certificate_expiry;
    std::map<std::string, std::int64_t> certificate_expiries;
};

// Thread-safe. Threads are spread over shards with a mutex each. These are rarely contended, since the front has few
// threads. Short-lived threads, such as one per API request, leave nothing behind.
class Metrics {
public:
    template <class Change>
    void count(const std::string& function, std::uint64_t version, const Change& change) {
        Shard& mine = shards_[shard_of_this_thread()];
        const std::lock_guard lock(mine.mutex);
        change(mine.versions[{function, version}]);
    }
    MetricsSnapshot snapshot() const;

private:
    static constexpr std::size_t kShards = 16;
    struct Shard {
        mutable std::mutex mutex;
        std::map<std::pair<std::string, std::uint64_t>, VersionMetrics> versions;
    };
    static std::size_t shard_of_this_thread();
    std::array<Shard, kShards> shards_;
};

} // namespace kvmserver::daemon
