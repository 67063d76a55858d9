// Which trials of versions (health.hpp) were passed a short time ago, so that a program which is deployed under many
// names, or again, is not started for each of them.
#pragma once
#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

#include "src/common/digest.hpp"

namespace kvmserver::daemon {

// Thread-safe.
class PassedTrials {
public:
    using Clock = std::chrono::steady_clock;
    // From the trial on, however often it counts meanwhile: what a machine needs of the host may change.
    static constexpr auto kCount = std::chrono::minutes(10);
    static constexpr std::size_t kMost = 1024;

    // Names a trial by all that it depends on.
    static Digest name(const Digest& snapshot, const std::vector<std::string_view>& inputs);

    bool has(const Digest& trial, Clock::time_point now = Clock::now()) const;
    void note(const Digest& trial, const Digest& snapshot, Clock::time_point now = Clock::now());
    // A process could not be restored from this snapshot: its trials no longer count.
    void forget(const Digest& snapshot);

private:
    struct Passed {
        Digest snapshot;
        Clock::time_point at;
    };
    mutable std::mutex mutex_;
    std::map<Digest, Passed> passed_; // guarded by mutex_
};

} // namespace kvmserver::daemon
