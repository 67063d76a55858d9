// STORE/measurements.db: what each function did, minute by minute, for charts. Only daemons open it; while one hands
// over to its successor, two of them add to the same points.
//
// A point is a step of time in which the function had requests; other steps have no point. Each request is in one point
// of each span. A point takes about 70 bytes and a function at most about 400 points.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "src/daemon/metrics.hpp"
#include "src/store/files/folder.hpp"
#include "src/store/index/database.hpp"

namespace kvmserver::daemon {

inline constexpr const char* kMeasurementFile = "measurements.db"; // in the store's folder

using LatencyBuckets = decltype(Histogram::buckets);

// What a function did during a step, or since the daemon's start.
struct Counts {
    std::uint64_t requests = 0, cold_starts = 0;
    std::uint64_t errors = 0; // VersionMetrics::failed()
    LatencyBuckets latency{}; // by kLatencyBounds

    void add(const VersionMetrics& metrics);
    void add(const Counts& other);
    // What came in addition to `before`, which is an earlier state of the same counters.
    Counts since(const Counts& before) const;
    // The upper bound in microseconds of the bucket in which `percent` of the requests have been answered; the last
    // bound stands for everything above it, too. Nothing without requests.
    std::optional<std::uint64_t> latency_us(unsigned percent) const;
};

struct Span {
    std::string_view name;
    std::int64_t step; // seconds
    std::int64_t seconds;
};
inline constexpr std::array<Span, 3> kSpans{{{"1h", 60, 3600}, {"24h", 600, 24 * 3600}, {"7d", 3600, 7 * 24 * 3600}}};

// The start of the step that contains `time`, in seconds since 1970.
constexpr std::int64_t step_start(std::int64_t time, std::int64_t step) { return time - ((time % step) + step) % step; }

using Points = std::map<std::int64_t, Counts>;                 // by the step's start, in seconds since 1970
using FunctionIdentity = std::pair<std::string, std::int64_t>; // name, creation time in ms since 1970

// Not thread-safe. Throws store::IndexDamaged for a damaged file or one with another layout (set_aside() is the
// remedy), UserError (busy, not permitted), HostError. Each change is one transaction; after a crash of the process
// none is lost, after a crash of the host those of about the last minute may be.
class MeasurementFile {
public:
    // Creates the file if there is none.
    explicit MeasurementFile(store::Folder& folder);
    // Renames a damaged file, which must not be open, to measurements.db.damaged. An earlier one of that name goes.
    static void set_aside(store::Folder& folder);

    // Adds to the points that contain `time`, then drops functions until at most `max_points` points are left: those
    // first that were not used for the longest time.
    void add(std::int64_t time, const std::map<FunctionIdentity, Counts>& counts, std::uint64_t max_points);
    // Removes all other functions.
    void keep(const std::function<bool(const FunctionIdentity&)>& exists);
    // Removes points that are older than their span, or after `now`.
    void prune(std::int64_t now);

    // Those from `from` to `to`, both included.
    Points points(const FunctionIdentity& function, const Span& span, std::int64_t from, std::int64_t to) const;
    std::map<FunctionIdentity, Points> points(const Span& span, std::int64_t from, std::int64_t to) const;
    std::uint64_t count() const; // of points

private:
    store::Database database_;
};

} // namespace kvmserver::daemon
