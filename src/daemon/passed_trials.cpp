#include "src/daemon/passed_trials.hpp"

#include <algorithm>
#include <cstdint>
#include <span>

namespace kvmserver::daemon {

Digest PassedTrials::name(const Digest& snapshot, const std::vector<std::string_view>& inputs) {
    Sha256 name;
    name.update(std::as_bytes(std::span(snapshot.bytes)));
    for (const std::string_view input : inputs) {
        const std::uint64_t length[] = {input.size()}; // so that no two lists of inputs are the same bytes
        name.update(std::as_bytes(std::span(length)));
        name.update(std::as_bytes(std::span(input)));
    }
    return name.finish();
}

bool PassedTrials::has(const Digest& trial, Clock::time_point now) const {
    const std::lock_guard lock(mutex_);
    const auto found = passed_.find(trial);
    return found != passed_.end() && now - found->second.at < kCount;
}

void PassedTrials::note(const Digest& trial, const Digest& snapshot, Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    passed_[trial] = {snapshot, now};
    if (passed_.size() > kMost)
        passed_.erase(std::min_element(passed_.begin(), passed_.end(), [](const auto& one, const auto& other) {
            return one.second.at < other.second.at;
        }));
}

void PassedTrials::forget(const Digest& snapshot) {
    const std::lock_guard lock(mutex_);
    std::erase_if(passed_, [&](const auto& passed) { return passed.second.snapshot == snapshot; });
}

} // namespace kvmserver::daemon
