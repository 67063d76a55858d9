#include "src/admin/staged.hpp"

#include <algorithm>

namespace kvmserver::admin {
namespace {
constexpr std::size_t kMax = 1000;
} // namespace

void Staged::add(store::SnapshotHold hold, std::int64_t token) {
    const std::lock_guard lock(mutex_);
    drop_old();
    make_room();
    const Digest digest = hold.digest();
    const auto [at, added] = entries_.try_emplace(digest, Entry{std::move(hold), {}, {}});
    at->second.tokens.insert(token);
    at->second.until = Clock::now() + kept_;
}

void Staged::remove(const Digest& digest, std::int64_t token) {
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(digest);
    if (at != entries_.end() && at->second.tokens.erase(token) != 0 && at->second.tokens.empty())
        entries_.erase(at);
}

std::vector<Digest> Staged::all_of(std::int64_t token) {
    const std::lock_guard lock(mutex_);
    drop_old();
    std::vector<Digest> all;
    for (const auto& [digest, entry] : entries_)
        if (entry.tokens.contains(token))
            all.push_back(digest);
    return all;
}

void Staged::expire() {
    const std::lock_guard lock(mutex_);
    drop_old();
}

void Staged::drop_old() {
    const auto now = Clock::now();
    std::erase_if(entries_, [&](const auto& entry) { return entry.second.until <= now; });
}

void Staged::make_room() {
    while (entries_.size() >= kMax)
        entries_.erase(std::ranges::min_element(entries_, {}, [](const auto& entry) { return entry.second.until; }));
}

} // namespace kvmserver::admin
