// What functions did during the last hour, day and week. Once a minute the counters' growth goes into a file; requests
// themselves cost nothing.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/daemon/measurement_file.hpp"
#include "src/daemon/metrics.hpp"
#include "src/store/files/folder.hpp"

namespace kvmserver::daemon {

// The steps of a span up to now. Steps without requests have no point.
struct Series {
    std::int64_t from = 0, to = 0; // start of the first and of the current, unfinished step; seconds since 1970
    Points points;
};
struct SeriesOfAll {
    std::int64_t from = 0, to = 0;
    std::map<std::string, Points> functions;
};

struct MeasurementOptions {
    std::function<std::int64_t()> now = {}; // the wall clock, in seconds since 1970; {}: the host's
    std::uint64_t max_points = 100'000;     // of all functions together
};

// Thread-safe. Nothing here throws when the file is damaged or cannot be used: that is noted once and tried again a
// minute later, and until then there is what was counted since the last write. A damaged file is set aside.
class Measurements {
public:
    // `read`: the counters of this process, which only grow. `note`: prints a line. Both outlive this object.
    Measurements(std::shared_ptr<store::Folder> folder, std::function<MetricsSnapshot()> read,
                 std::function<void(const std::string&)> note, MeasurementOptions options = {});

    // `functions` tells which functions exist, and is called at once. Measurements of others are removed, and a new
    // function with the name of a former one begins with none. Call it before the first tick() and after each change.
    void keep(const std::function<std::vector<FunctionIdentity>()>& functions);
    // The same after a change, told by what came (true) and went (false), in this order.
    void change(const std::function<std::vector<std::pair<FunctionIdentity, bool>>()>& changes);
    // To be called often: writes when a minute is over.
    void tick();
    // Writes what was counted since the last write: before the process ends.
    void write();

    Series of(const FunctionIdentity& function, const Span& span);
    SeriesOfAll of_all(const Span& span);

private:
    using Sums = std::map<std::string, Counts>; // by function
    std::int64_t now() const;
    Sums sums() const;
    Counts pending(const std::string& function, const Sums& now) const;
    std::int64_t pending_time() const;
    void add_pending(Points& points, const std::string& function, const Sums& now, const Span& span) const;
    void write_at(std::int64_t minute);
    bool knows(const FunctionIdentity& function) const;
    void forget(const FunctionIdentity& function, const Sums& now);
    template <class Action>
    bool with_file(const Action& action);

    const std::shared_ptr<store::Folder> folder_;
    const std::function<MetricsSnapshot()> read_;
    const std::function<void(const std::string&)> note_;
    const MeasurementOptions options_;
    mutable std::mutex mutex_;                // guards the following
    std::optional<MeasurementFile> file_;     // empty: not opened yet, or it failed
    std::string noted_;                       // the last failure
    std::vector<FunctionIdentity> functions_; // sorted: a set would take three times as much
    Sums written_;                            // the counters that are in the file
    std::int64_t minute_ = 0;                 // start of the minute to which what is counted now belongs
    unsigned regular_ = 0;                    // minutes in a row that followed each other, as those of a right clock do
};

} // namespace kvmserver::daemon
