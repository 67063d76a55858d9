#include "src/admin/arriving_states.hpp"

#include <utility>

namespace kvmserver::admin {

namespace {
constexpr std::chrono::minutes kKept{10};
} // namespace

std::optional<ArrivingState> ArrivingStates::take(const Of& of) {
    const std::lock_guard lock(mutex_);
    auto found = entries_.extract(of);
    if (!found)
        return std::nullopt;
    return std::move(found.mapped().state);
}

void ArrivingStates::keep(const Of& of, ArrivingState state) {
    const auto now = std::chrono::steady_clock::now();
    const std::lock_guard lock(mutex_);
    for (auto entry = entries_.begin(); entry != entries_.end();) {
        if (entry->second.until >= now) {
            ++entry;
            continue;
        }
        entry->second.state.state.drop();
        entry = entries_.erase(entry);
    }
    entries_.emplace(of, Entry{std::move(state), now + kKept}); // whoever has one has taken it before
}

} // namespace kvmserver::admin
