#include "src/store/shared/generation.hpp"

#include <chrono>
#include <thread>

#include "src/store/errors.hpp"
#include "src/store/shared/documents.hpp"
#include "src/store/snapshots/bucket_chunks.hpp"

namespace kvmserver::store {

namespace {

constexpr int kTries = 20;
constexpr std::chrono::milliseconds kLook{100};
constexpr std::chrono::seconds kPatience{60}; // gc lets others go on after some seconds

struct GcState { // at one moment
    std::int64_t generation = 0;
    bool runs = false;
};
GcState gc_state(SharedIndex& index) {
    GcState state;
    for (const SharedEntry& entry : index.entries(std::string(kSharedGc)))
        if (entry.key == kGcGeneration)
            state.generation = entry.revision;
        else if (entry.key == kGcRunning)
            state.runs = true;
    return state;
}

std::int64_t asked_at(const Database& database, const Digest& snapshot) {
    auto found = database.prepare("SELECT in_bucket_at FROM snapshot WHERE digest = ?");
    return found.bind(snapshot).step() ? found.integer(0) : -1;
}

void make_sure(Store& store, const Digest& snapshot, std::int64_t now) {
    if (asked_at(*store.index(), snapshot) == now)
        return;
    upload_snapshot(store, snapshot, BucketUpload::Ask::all);
    auto index = store.index();
    index->prepare("UPDATE snapshot SET in_bucket_at = ? WHERE digest = ?").bind(now).bind(snapshot).run();
}

void wait_for_gc(SharedIndex& index) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (gc_state(index).runs && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(kLook);
}

} // namespace

void with_chunks_in_bucket(Store& store, std::span<const Digest> snapshots, const std::function<void()>& change) {
    if (!store.shared())
        return change();
    for (int i = 0; i < kTries; ++i) {
        const GcState now = gc_state(*store.shared());
        // What is asked of the bucket while gc runs would count for the generation that gc began, and gc goes on to
        // remove what was seen.
        if (now.runs) {
            wait_for_gc(*store.shared());
            continue;
        }
        for (const Digest& snapshot : snapshots)
            make_sure(store, snapshot, now.generation);
        try {
            return change();
        } catch (const BucketCollected&) {
            wait_for_gc(*store.shared());
        }
    }
    throw BucketCollected();
}

std::vector<SharedCondition> conditions_of_bucket(const Database& database, std::span<const Digest> snapshots) {
    std::vector<SharedCondition> conditions;
    if (!snapshots.empty())
        conditions.push_back({.key = kGcRunning});
    for (const Digest& snapshot : snapshots)
        conditions.push_back({.key = kGcGeneration, .revision = asked_at(database, snapshot)});
    return conditions;
}

void require_same_generation(SharedIndex& index, std::span<const SharedCondition> conditions) {
    for (const SharedCondition& condition : conditions) {
        const auto entry = index.get(condition.key);
        if (condition.revision != (entry ? entry->revision : 0))
            throw BucketCollected();
    }
}

} // namespace kvmserver::store
