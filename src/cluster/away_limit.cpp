#include "src/cluster/away_limit.hpp"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "src/common/clock.hpp"
#include "src/common/time_text.hpp"
#include "src/store/files/record.hpp"
#include "src/store/files/record_json.hpp"

namespace kvmserver::cluster {

namespace {

constexpr const char* kKind = "cluster-contact";
constexpr std::int64_t kSecondMs = 1000;
// The record is at most this old while the index is reached: a daemon that is killed loses so much of its time.
constexpr std::int64_t kLeastPeriod = kSecondMs, kMostPeriod = 60 * kSecondMs, kPeriodsOfLimit = 10;

std::int64_t boot_ms() {
    timespec now{};
    ::clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * kSecondMs + now.tv_nsec / 1'000'000;
}

} // namespace

AwayLimit::AwayLimit(const std::filesystem::path& store, std::chrono::milliseconds limit,
                     std::function<void(const std::string&)> note)
    : folder_(store, store::real_files()), limit_(limit.count()), note_(std::move(note)), contact_(boot_ms()) {
    if (!read_record())
        write_record(contact_); // else each restart would begin anew
}

bool AwayLimit::read_record() {
    try {
        const auto file = folder_.read(store::kClusterContact, store::kMaxRecordBytes);
        if (!file)
            return false;
        const std::int64_t at = store::time_field(store::parse_record(store::open_record(kKind, *file)), "time");
        contact_ -= std::max<std::int64_t>(now_ms() - at, 0); // the clock may have been set back
        written_ = contact_;
        return true;
    } catch (const std::exception& error) {
        note_(fmt::format("{}: {}: --cluster-away-limit counts from now on", folder_.full(store::kClusterContact),
                          error.what()));
        return false;
    }
}

// Not synced to the folder: after a crash of the host the one before counts. gc may remove the temporary file of it;
// the next tick tries again then.
void AwayLimit::write_record(std::int64_t now) {
    try {
        folder_.put(store::kClusterContact,
                    store::seal_record(kKind, store::Json{{"time", now_ms() - (now - contact_)}}.dump()));
        written_ = now;
        said_.clear();
    } catch (const std::exception& error) {
        if (std::exchange(said_, error.what()) != error.what())
            note_(fmt::format("when the cluster's index was last reached is not recorded: {}", error.what()));
    }
}

void AwayLimit::tick(bool reached) {
    const std::int64_t now = boot_ms();
    const std::int64_t period =
        limit_ == 0 ? kMostPeriod : std::clamp(limit_ / kPeriodsOfLimit, kLeastPeriod, kMostPeriod);
    if (reached)
        contact_ = now;
    if (reached ? now - written_ >= period : was_reached_)
        write_record(now);
    was_reached_ = reached;
    const bool over = limit_ != 0 && now - contact_ >= limit_;
    if (over_.exchange(over) == over)
        return;
    note_(over ? fmt::format("the cluster's index has not been reached since {}, longer than --cluster-away-limit: "
                             "functions are not served, and /readyz answers 503, until it is reached again",
                             time_text(now_ms() - (now - contact_)))
               : "the cluster's index is reached again: functions are served");
}

} // namespace kvmserver::cluster
