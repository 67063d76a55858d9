// What the daemon counts. Each thread counts for itself; a snapshot sums.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

namespace kvmserver::daemon {

// Upper bounds in microseconds; one more bucket holds what is above the last. Buckets are not cumulative.
inline constexpr std::array<std::uint64_t, 19> kLatencyBounds{
    100,       250,        500,        1'000,      2'500,      5'000,     10'000,
    25'000,    50'000,     100'000,    250'000,    500'000,    1'000'000, 2'500'000,
    5'000'000, 10'000'000, 30'000'000, 60'000'000, 300'000'000};

struct Histogram {
    std::array<std::uint64_t, kLatencyBounds.size() + 1> buckets{};
    std::uint64_t count = 0, sum_us = 0;
    void add(std::uint64_t us);
    void add(const Histogram& other);
};

// Of one version of a function. ("", 0): requests that no route matched, or that were no requests at all.
struct VersionMetrics {
    std::map<unsigned, std::uint64_t> requests; // by status; 0: the client got none
    Histogram duration, queue, restore, reset;
    std::uint64_t bytes_in = 0, bytes_out = 0;
    std::uint64_t cold_starts = 0; // requests that waited for a process to be restored
    std::uint64_t timeouts = 0;
    std::uint64_t dirty_pages = 0;                 // copied back or dropped by resets
    std::uint64_t cpu_us = 0;                      // of machines, while they served
    std::map<std::string, std::uint64_t> rejected; // queue-full, queue-timeout, not-live, not-started, ...
    std::map<std::string, std::uint64_t> faults;   // program-failed, out-of-memory, worker-died, ...
    void add(const VersionMetrics& other);
};

struct MetricsSnapshot {
    std::map<std::pair<std::string, std::uint64_t>, VersionMetrics> versions; // by function and version
    std::uint64_t in_flight = 0, connections = 0, open_connections = 0;       // of the public listener
    std::uint64_t started_ms = 0; // when the daemon began, since 1970
};

// Thread-safe. A thread takes its own lock only, which nobody but a snapshot contends for.
class Metrics {
public:
    Metrics();
    ~Metrics();
    template <class Change>
    void count(const std::string& function, std::uint64_t version, const Change& change) {
        Shard& mine = shard();
        const std::lock_guard lock(mine.mutex);
        change(mine.versions[{function, version}]);
    }
    MetricsSnapshot snapshot() const;

private:
    struct Shard {
        std::mutex mutex;
        std::map<std::pair<std::string, std::uint64_t>, VersionMetrics> versions;
    };
    Shard& shard();
    const std::uint64_t id_;
    mutable std::mutex mutex_;
    std::vector<std::shared_ptr<Shard>> shards_;
};

} // namespace kvmserver::daemon
