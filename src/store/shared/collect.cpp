#include "src/store/shared/collect.hpp"

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "src/common/random_hex.hpp"
#include "src/store/errors.hpp"
#include "src/store/shared/copy.hpp"
#include "src/store/shared/documents.hpp"
#include "src/store/shared/shared_index.hpp"
#include "src/store/snapshots/chunk_bucket.hpp"

namespace kvmserver::store {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kSlice{5};   // deploys wait for so long
constexpr std::chrono::seconds kBetween{3}; // they ask the bucket for what they name

struct Objects {
    std::set<Digest> chunks, records;
    std::size_t size() const { return chunks.size() + records.size(); }
};

// What functions have. The store's index is a copy of the cluster's.
Objects named(const Database& database) {
    Objects objects;
    auto records = database.prepare("SELECT DISTINCT s.digest FROM snapshot s JOIN version v ON v.snapshot = s.id");
    while (records.step())
        objects.records.insert(records.digest(0));
    auto chunks = database.prepare("SELECT DISTINCT c.digest FROM chunk c JOIN piece p ON p.chunk = c.id "
                                   "WHERE p.snapshot IN (SELECT snapshot FROM version)");
    while (chunks.step())
        objects.chunks.insert(chunks.digest(0));
    return objects;
}

Objects objects_in(ChunkBucket& bucket) {
    Objects objects;
    bucket.list([&](const Digest& chunk) { objects.chunks.insert(chunk); });
    bucket.list_records([&](const Digest& snapshot) { objects.records.insert(snapshot); });
    return objects;
}

void subtract(Objects& from, const Objects& what) {
    std::erase_if(from.chunks, [&](const Digest& chunk) { return what.chunks.contains(chunk); });
    std::erase_if(from.records, [&](const Digest& snapshot) { return what.records.contains(snapshot); });
}

void copy_everything(Store& store) {
    const CopiedAll copied = copy_all(store);
    if (!copied.failed.empty()) // what it names is not known
        throw UserError(ExitCode::failure, "nothing is removed from the bucket: " + copied.failed.front());
}

// The store does not count on it any more.
void forget(Store& store, const Digest& chunk) {
    store.index()->prepare("UPDATE chunk SET in_bucket = 0 WHERE digest = ?").bind(chunk).run();
}

void remove_one(Store& store, Objects& unnamed) {
    // The list of chunks first: without it nobody looks for them.
    if (!unnamed.records.empty()) {
        store.bucket()->remove_record(*unnamed.records.begin());
        unnamed.records.erase(unnamed.records.begin());
        return;
    }
    forget(store, *unnamed.chunks.begin());
    store.bucket()->remove(*unnamed.chunks.begin());
    unnamed.chunks.erase(unnamed.chunks.begin());
}

// Removes some, until the slice is over. Returns how many.
std::uint64_t remove_some(Store& store, Objects& unnamed, SharedLock& lock) {
    const auto end = Clock::now() + kSlice;
    std::uint64_t removed = 0;
    // The lock outlasts each removal: with its repetitions, a request to the bucket ends within 40 s.
    for (; unnamed.size() > 0 && Clock::now() < end && lock.held(); ++removed)
        try {
            remove_one(store, unnamed);
        } catch (const ChunksAway&) { // a service that hung may do it later: no deploy is to count on the object
            lock.abandon();
            throw;
        }
    return removed;
}

} // namespace

std::uint64_t collect_shared_bucket(Store& store, bool dry_run) {
    Objects unnamed = objects_in(*store.bucket());
    if (dry_run) {
        copy_everything(store);
        subtract(unnamed, named(*store.index()));
        return unnamed.size();
    }
    std::uint64_t removed = 0;
    for (;;) {
        {
            const auto lock = store.shared()->try_lock(kGcRunning);
            if (!lock)
                throw Conflict("another daemon of the cluster removes objects from the bucket: wait until it is done");
            const SharedChange generation{kGcGeneration, random_hex(8)};
            (void)store.shared()->change({}, {&generation, 1});
            // From here on no function gets a snapshot that none has.
            copy_everything(store);
            subtract(unnamed, named(*store.index()));
            removed += remove_some(store, unnamed, *lock);
        }
        if (unnamed.size() == 0)
            return removed;
        std::this_thread::sleep_for(kBetween);
    }
}

} // namespace kvmserver::store
