#include "src/store/snapshots/gc.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "src/common/clock.hpp"
#include "src/store/functions/function_change.hpp"
#include "src/store/functions/function_record.hpp"
#include "src/store/shared/membership.hpp"
#include "src/store/snapshots/chunk_files.hpp"
#include "src/store/snapshots/pin.hpp"
#include "src/store/snapshots/saved_state.hpp"
#include "src/store/snapshots/snapshot_record.hpp"
#include "src/store/snapshots/sweep.hpp"

namespace kvmserver::store {

namespace {

// A version that is on its way from another daemon comes within a week, or the migration has failed.
constexpr std::int64_t kMigrationMs = 7ll * 24 * 3600 * 1000;

// What the transaction removes, and the files to remove with it.
struct Plan {
    GcResult result;
    std::vector<std::string> records;
    std::set<std::string> folders;
    std::vector<Digest> chunks;
};

// Of each function that loses versions.
Event event_of(const std::vector<std::uint64_t>& versions, const Author& author) {
    constexpr std::size_t kNamed = 20;
    Event event;
    event.author = author;
    event.action = name_of(Action::gc);
    for (std::size_t i = 0; i < std::min(versions.size(), kNamed); ++i)
        event.subject += fmt::format("{}v{}", i == 0 ? "" : ", ", versions[i]);
    if (versions.size() > kNamed)
        event.subject += fmt::format(" and {} more", versions.size() - kNamed);
    return event;
}

struct OldVersion {
    std::int64_t id = 0, function = 0;
    std::string name;
    std::uint64_t number = 0;
};

// Without `keep`, the manifest of each function's newest version decides. (In SQL, a comparison with NULL or with
// something other than a number removes none.)
std::vector<OldVersion> old_versions(const Database& database, const GcOptions& options) {
    const std::optional<unsigned> keep = options.keep_versions;
    auto old = database.prepare(
        "SELECT v.id, f.name, v.number, v.function FROM (SELECT id, function, number, state, created, row_number() "
        "OVER newest_first AS place, first_value(manifest) OVER newest_first AS newest FROM version "
        "WINDOW newest_first AS (PARTITION BY function ORDER BY number DESC)) v "
        "JOIN function f ON f.id = v.function "
        "WHERE v.place > CASE WHEN ?1 >= 0 THEN ?1 ELSE json_extract(v.newest, '$.function.versions.keep') "
        "END "
        "AND NOT EXISTS (SELECT 1 FROM traffic t WHERE t.function = v.function AND t.number = v.number) "
        "AND NOT (v.state = 'pending' AND v.created > ?2) "
        "ORDER BY v.function, v.number");
    std::vector<OldVersion> versions;
    for (old.bind(keep ? std::int64_t{*keep} : std::int64_t{-1}).bind(now_ms() - kMigrationMs); old.step();)
        versions.push_back({old.integer(0), old.integer(3), old.text(1), old.natural(2)});
    return versions;
}

void note_dropped(const OldVersion& version, GcResult& result) {
    result.lines.push_back(fmt::format("{} v{}", version.name, version.number));
    ++result.versions;
}

void drop_versions(Database& database, const GcOptions& options, Plan& plan) {
    std::map<std::int64_t, std::vector<std::uint64_t>> of_function;
    auto drop = database.prepare("DELETE FROM version WHERE id = ?");
    for (const OldVersion& version : old_versions(database, options)) {
        of_function[version.function].push_back(version.number);
        plan.records.push_back(version_record_path(version.name, version.number));
        plan.folders.insert(function_folder(version.name));
        note_dropped(version, plan.result);
        drop.bind(version.id).run();
    }
    for (const auto& [function, versions] : of_function)
        insert_event(database, function, event_of(versions, options.author));
}

// In a cluster each function is a change of its own, which others get.
void drop_shared_versions(Store& store, const GcOptions& options, GcResult& result) {
    std::map<std::string, std::vector<OldVersion>> of_function;
    for (OldVersion& version : old_versions(*store.index(), options)) {
        std::string name = version.name;
        of_function[std::move(name)].push_back(std::move(version));
    }
    for (const auto& [name, versions] : of_function) {
        FunctionChange change(store, name, {}, FunctionChange::Missing::error);
        std::vector<std::uint64_t> dropped;
        // Another daemon may have made one live meanwhile.
        for (const OldVersion& still : old_versions(change.database(), options)) {
            if (still.name != name)
                continue;
            change.remove(still.number);
            dropped.push_back(still.number);
            note_dropped(still, result);
        }
        if (!dropped.empty())
            change.commit(event_of(dropped, options.author));
    }
}

void drop_snapshots(Database& database, const Marks& marks, Plan& plan) {
    auto unnamed = database.prepare("SELECT s.id, s.digest FROM snapshot s WHERE NOT EXISTS "
                                    "(SELECT 1 FROM version v WHERE v.snapshot = s.id)");
    std::vector<std::int64_t> ids;
    while (unnamed.step()) {
        const Digest digest = unnamed.digest(1);
        if (std::binary_search(marks.snapshots.begin(), marks.snapshots.end(), digest))
            continue;
        ids.push_back(unnamed.integer(0));
        plan.result.lines.push_back("snapshot " + digest.hex());
    }
    auto drop = database.prepare("DELETE FROM snapshot WHERE id = ?");
    for (const std::int64_t id : ids)
        drop.bind(id).run();
    plan.result.snapshots = ids.size();
    database.execute("DELETE FROM chunk WHERE NOT EXISTS (SELECT 1 FROM piece WHERE piece.chunk = chunk.id)");
}

// Adds the records of snapshots that have no row (any more).
void plan_records(const Folder& folder, const Database& database, Plan& plan) {
    std::set<std::string> named;
    auto rows = database.prepare("SELECT digest FROM snapshot");
    while (rows.step())
        named.insert(snapshot_record_path(rows.digest(0)));
    for (const std::string& file : folder.list(kSnapshots)) {
        const std::string path = fmt::format("{}/{}", kSnapshots, file);
        if (named.contains(path) || !Digest::from_hex(file.substr(0, 64)))
            continue;
        plan.records.push_back(path);
        plan.folders.insert(kSnapshots);
    }
}

} // namespace

GcResult gc(Store& store, const GcOptions& options) {
    Plan plan;
    Folder& folder = store.folder();
    require_index_of_cluster(store);
    if (store.shared() && !options.dry_run)
        drop_shared_versions(store, options, plan.result);
    {
        const FileLock sweeping = store.sweeping();
        const Marks marks = read_marks(folder, sweeping);
        auto index = store.index();
        Transaction transaction(*index);
        const Leftovers leftovers = find_leftovers(folder, *index, marks);
        plan.result.leftovers = leftovers.paths.size();
        plan.result.bytes += leftovers.bytes;
        // In a cluster what has become old since then is not only this store's to remove.
        if (!store.shared() || options.dry_run)
            drop_versions(*index, options, plan);
        drop_snapshots(*index, marks, plan);
        plan_records(folder, *index, plan);
        plan.chunks = chunk_files_but(folder, known_chunks(*index));
        // Their versions are not live, whether the transaction succeeds or not.
        for_each_unneeded_state(store.shared_folder(), *index, [&](SavedState& state) {
            ++plan.result.leftovers;
            plan.result.bytes += state.bytes();
            if (!options.dry_run)
                state.forget();
        });
        if (options.dry_run) {
            for (const Digest& digest : plan.chunks)
                plan.result.bytes += folder.size_of(chunk_path(digest)).value_or(0);
            plan.result.chunks = plan.chunks.size();
            return plan.result;
        }
        // Records before rows: a record left behind would look like a lost row.
        for (const std::string& path : plan.records)
            folder.remove(path);
        for (const std::string& path : plan.folders)
            folder.sync_folder(path);
        transaction.commit();
        remove(folder, leftovers);
    }
    const Removed removed = remove_chunks(store, plan.chunks);
    plan.result.chunks = removed.chunks;
    plan.result.bytes += removed.bytes;
    return plan.result;
}

bool remove_snapshot(Store& store, const Digest& digest) {
    constexpr int kPatienceMs = 1000;
    std::vector<Digest> chunks;
    {
        const auto sweeping = FileLock::exclusive_within(store.folder(), kSweepLock, kPatienceMs);
        if (!sweeping)
            return false;
        const Marks marks = read_marks(store.folder(), *sweeping);
        if (std::binary_search(marks.snapshots.begin(), marks.snapshots.end(), digest))
            return false;
        auto index = store.index();
        Transaction transaction(*index);
        if (!has_snapshot(*index, digest))
            return true;
        auto named = index->prepare("SELECT 1 FROM version v JOIN snapshot s ON s.id = v.snapshot WHERE s.digest = ?");
        if (named.bind(digest).step())
            return false;
        for (const ChunkRef& piece : load_snapshot(*index, digest).pieces)
            chunks.push_back(piece.digest);
        index->prepare("DELETE FROM snapshot WHERE digest = ?").bind(digest).run();
        auto drop = index->prepare("DELETE FROM chunk WHERE digest = ? AND "
                                   "NOT EXISTS (SELECT 1 FROM piece WHERE piece.chunk = chunk.id)");
        for (const Digest& chunk : chunks)
            drop.bind(chunk).run();
        store.folder().remove(snapshot_record_path(digest)); // before the row: see gc()
        store.folder().sync_folder(kSnapshots);
        transaction.commit();
    }
    remove_chunks(store, chunks); // those that the index still knows stay
    return true;
}

std::size_t remove_leftovers(Store& store) {
    constexpr int kPatienceMs = 1000;
    const auto sweeping = FileLock::exclusive_within(store.folder(), kSweepLock, kPatienceMs);
    if (!sweeping)
        return 0; // a deploy or another sweep is running: the next start or gc will do it
    const Marks marks = read_marks(store.folder(), *sweeping);
    const Leftovers leftovers = find_leftovers(store.folder(), *store.index(), marks);
    remove(store.folder(), leftovers);
    return leftovers.paths.size();
}

} // namespace kvmserver::store
