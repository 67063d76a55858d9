#include "src/daemon/measurements.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "src/common/clock.hpp"
#include "src/store/errors.hpp"

namespace kvmserver::daemon {

namespace {

constexpr std::int64_t kMinute = 60;
// A clock may jump, above all soon after the host's start. Points are removed by their age only after so many minutes
// without a jump, so that a wrong clock costs nothing.
constexpr unsigned kPruneEvery = 10;

} // namespace

Measurements::Measurements(std::shared_ptr<store::Folder> folder, std::function<MetricsSnapshot()> read,
                           std::function<void(const std::string&)> note, MeasurementOptions options)
    : folder_(std::move(folder)), read_(std::move(read)), note_(std::move(note)), options_(std::move(options)),
      minute_(step_start(now(), kMinute)) {}

std::int64_t Measurements::now() const { return options_.now ? options_.now() : now_ms() / 1000; }

// A damaged file is set aside, and the action is done once more with a new one.
template <class Action>
bool Measurements::with_file(const Action& action) {
    std::string problem;
    for (int attempt = 0; attempt < 2; ++attempt) {
        try {
            if (!file_)
                file_.emplace(*folder_);
            action(*file_);
            noted_.clear();
            return true;
        } catch (const store::IndexDamaged& error) {
            file_.reset();
            try {
                MeasurementFile::set_aside(*folder_);
                note_(fmt::format("{0}: damaged, set aside as {0}.damaged; measurements begin anew ({1})",
                                  kMeasurementFile, error.why()));
                continue;
            } catch (const std::exception& failed) {
                problem = failed.what();
            }
        } catch (const std::exception& error) {
            file_.reset();
            problem = error.what();
        }
        break;
    }
    if (problem.empty())
        problem = "a new file is damaged, too";
    if (noted_ != problem)
        note_(fmt::format("measurements are not kept for now: {}", problem));
    noted_ = problem;
    return false;
}

Measurements::Sums Measurements::sums() const {
    Sums sums;
    for (const auto& [key, metrics] : read_().versions)
        if (!key.first.empty())
            sums[key.first].add(metrics);
    return sums;
}

Counts Measurements::pending(const std::string& function, const Sums& now) const {
    const auto sum = now.find(function);
    if (sum == now.end())
        return {};
    const auto written = written_.find(function);
    return written == written_.end() ? sum->second : sum->second.since(written->second);
}

// Not in the future, if the clock was set back.
std::int64_t Measurements::pending_time() const { return std::min(minute_, step_start(now(), kMinute)); }

void Measurements::add_pending(Points& points, const std::string& function, const Sums& now, const Span& span) const {
    const std::int64_t step = step_start(pending_time(), span.step);
    if (step < step_start(this->now(), span.step) - span.seconds) // the clock was set forward
        return;
    if (const Counts counts = pending(function, now); counts.requests != 0)
        points[step].add(counts);
}

void Measurements::write_at(std::int64_t minute) {
    Sums now = sums();
    std::map<FunctionIdentity, Counts> more;
    for (const auto& [name, sum] : now) // these are few where functions are very many
        if (const auto at = std::ranges::lower_bound(functions_, name, {}, &FunctionIdentity::first);
            at != functions_.end() && at->first == name)
            if (const Counts counts = pending(name, now); counts.requests != 0)
                more.emplace(*at, counts);
    if (more.empty() || with_file([&](MeasurementFile& file) { file.add(minute, more, options_.max_points); }))
        written_ = std::move(now);
}

void Measurements::keep(const std::function<std::vector<FunctionIdentity>()>& functions) {
    const std::lock_guard lock(mutex_); // also during the call: the last one to ask is the last one to set
    const Sums now = sums();
    const auto before = std::exchange(functions_, functions());
    std::ranges::sort(functions_);
    for (const FunctionIdentity& function : before)
        if (!knows(function))
            forget(function, now);
    with_file([&](MeasurementFile& file) {
        file.keep([this](const FunctionIdentity& function) { return knows(function); });
    });
}

void Measurements::change(const std::function<std::vector<std::pair<FunctionIdentity, bool>>()>& changes) {
    const std::lock_guard lock(mutex_); // also during the call, as in keep()
    bool some_went = false;
    for (const auto& [function, came] : changes()) {
        if (came) {
            if (!knows(function))
                functions_.insert(std::ranges::upper_bound(functions_, function), function);
        } else if (knows(function)) {
            functions_.erase(std::ranges::lower_bound(functions_, function));
            forget(function, sums());
            some_went = true;
        }
    }
    if (some_went)
        with_file([&](MeasurementFile& file) {
            file.keep([this](const FunctionIdentity& function) { return knows(function); });
        });
}

bool Measurements::knows(const FunctionIdentity& function) const {
    return std::ranges::binary_search(functions_, function);
}

// It is deleted: nothing of it counts for a later function of this name.
void Measurements::forget(const FunctionIdentity& function, const Sums& now) {
    if (const auto sum = now.find(function.first); sum != now.end())
        written_[function.first] = sum->second;
}

void Measurements::tick() {
    const std::lock_guard lock(mutex_);
    const std::int64_t minute = step_start(now(), kMinute);
    if (minute == minute_)
        return;
    write_at(pending_time());
    regular_ = minute == minute_ + kMinute ? regular_ + 1 : 0;
    minute_ = minute;
    if (regular_ != 0 && regular_ % kPruneEvery == 0)
        with_file([&](MeasurementFile& file) {
            file.keep([this](const FunctionIdentity& function) {
                return knows(function);
            }); // a predecessor may have written of deleted ones
            file.prune(minute_);
        });
}

void Measurements::write() {
    const std::lock_guard lock(mutex_);
    write_at(pending_time());
}

Series Measurements::of(const FunctionIdentity& function, const Span& span) {
    const std::lock_guard lock(mutex_);
    Series series;
    series.to = step_start(now(), span.step);
    series.from = series.to - span.seconds;
    with_file([&](MeasurementFile& file) { series.points = file.points(function, span, series.from, series.to); });
    if (knows(function))
        add_pending(series.points, function.first, sums(), span);
    return series;
}

SeriesOfAll Measurements::of_all(const Span& span) {
    const std::lock_guard lock(mutex_);
    SeriesOfAll all;
    all.to = step_start(now(), span.step);
    all.from = all.to - span.seconds;
    std::map<FunctionIdentity, Points> found;
    with_file([&](MeasurementFile& file) { found = file.points(span, all.from, all.to); });
    const Sums now = sums();
    for (const FunctionIdentity& function : functions_) {
        Points& points = all.functions[function.first];
        if (const auto at = found.find(function); at != found.end())
            points = std::move(at->second);
        add_pending(points, function.first, now, span);
    }
    return all;
}

} // namespace kvmserver::daemon
