#include "src/store/shared/copy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "src/store/errors.hpp"
#include "src/store/files/record.hpp"
#include "src/store/functions/changes.hpp"
#include "src/store/functions/function_change.hpp"
#include "src/store/functions/settings_record.hpp"
#include "src/store/shared/copied.hpp"
#include "src/store/shared/documents.hpp"
#include "src/store/shared/drained.hpp"
#include "src/store/shared/unknown_fields.hpp"
#include "src/store/snapshots/bucket_chunks.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::store {

namespace {

void copy_newest(Store& store, const std::string& key, const std::optional<SharedEntry>& entry) {
    const Copied here = copied(*store.index(), key);
    if (entry && entry->revision > here.revision)
        copy_entry(store, *entry);
    else if (!entry && !here.gone)
        copy_deletion(store, key, here.revision);
}

[[noreturn]] void senseless(const Store& store, const std::string& key, const std::string& why) {
    throw UserError(ExitCode::failure, fmt::format("{}: {}: {}: deploy it again or restore a backup of the index",
                                                   store.shared()->name(), tinykvm::brief(key), why));
}

// A change of the store by what came from the cluster. Rolled back, rows and records, unless committed.
class CopyChange {
public:
    CopyChange(Store& store, std::string function)
        : store_(store), function_(std::move(function)), naming_(store.naming()), index_(store.index()),
          transaction_(*index_) {}
    ~CopyChange() {
        if (done_)
            return;
        transaction_.roll_back();
        if (!files_touched_)
            return;
        try {
            align();
        } catch (...) { // verify repairs this later
        }
    }
    CopyChange(const CopyChange&) = delete;
    CopyChange& operator=(const CopyChange&) = delete;

    Database& database() { return *index_; }
    void touch_files() { files_touched_ = true; }
    void commit(const std::string& key, const Copied& state) {
        files_touched_ = true;
        note_change(*index_, function_);
        note_copied(*index_, key, state);
        align();
        transaction_.commit();
        done_ = true;
    }

private:
    void align() {
        if (function_.empty())
            align_settings(store_.folder(), *index_);
        else
            align_records(store_.folder(), *index_, function_);
    }

    Store& store_;
    const std::string function_; // "": the settings
    FileLock naming_;
    Store::Index index_;
    Transaction transaction_;
    bool files_touched_ = false, done_ = false;
};

// The list of the snapshot's chunks, from the bucket.
SnapshotRecord fetch_record(Store& store, const std::string& key, const SharedVersion& version) {
    const Digest& digest = version.record.snapshot;
    const auto text = store.bucket() ? store.bucket()->get_record(digest) : std::nullopt;
    if (!text)
        senseless(store, key, fmt::format("the bucket has no list of the chunks of snapshot {}", digest.hex()));
    try {
        SnapshotRecord record = snapshot_from_record(*text);
        if (record.digest == digest && digest_of_pieces(record) == version.pieces)
            return record;
    } catch (const RecordError&) {
    }
    senseless(store, key, fmt::format("the bucket's list of the chunks of snapshot {} is altered", digest.hex()));
}

using Records = std::map<Digest, SnapshotRecord>;

// False: gc has removed one meanwhile.
bool insert_snapshots(Store& store, Database& database, const SharedFunction& function, const Records& records) {
    bool written = false;
    for (const SharedVersion& version : function.versions) {
        if (has_snapshot(database, version.record.snapshot))
            continue;
        const auto record = records.find(version.record.snapshot);
        if (record == records.end())
            return false;
        insert_snapshot(database, record->second);
        for (const ChunkRef& piece : record->second.pieces)
            note_in_bucket(database, piece.digest);
        store.folder().put(snapshot_record_path(record->first), to_record(record->second));
        written = true;
    }
    if (written)
        store.folder().sync_folder(kSnapshots);
    return true;
}

void remove_function(Database& database, std::int64_t id) {
    database.prepare("DELETE FROM traffic WHERE function = ?").bind(id).run(); // it would keep the versions
    database.prepare("DELETE FROM function WHERE id = ?").bind(id).run();
}

// The row of the function, of which the details are still to come. Returns its id in this store.
std::int64_t put_function_row(Database& database, const FunctionRecord& function) {
    auto found = database.prepare("SELECT id, tag FROM function WHERE name = ?");
    if (found.bind(function.name).step()) {
        const std::int64_t id = found.integer(0);
        if (found.text(1) == function.tag) {
            database
                .prepare("UPDATE function SET revision = ?, last_version = ?, created = ?, changed = ?, moved = ? "
                         "WHERE id = ?")
                .bind(function.revision)
                .bind(function.last_version)
                .bind(function.created)
                .bind(function.changed)
                .bind(function.moved ? to_text(*function.moved) : "")
                .bind(id)
                .run();
            for (const char* const table : {"traffic", "route", "env", "secret", "event"})
                database.prepare(fmt::format("DELETE FROM {} WHERE function = ?", table)).bind(id).run();
            return id;
        }
        remove_function(database, id); // that one was deleted, and another one has its name
    }
    FunctionRecord made = function;
    made.id = database.number("SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'function'), 0) + 1");
    insert_function_row(database, made);
    return made.id;
}

void put_versions(Database& database, std::int64_t id, const std::vector<SharedVersion>& versions) {
    std::set<std::uint64_t> known;
    for (const std::uint64_t number : version_numbers(database, id))
        if (std::ranges::find(versions, number, [](const SharedVersion& one) { return one.record.number; }) ==
            versions.end())
            database.prepare("DELETE FROM version WHERE function = ? AND number = ?").bind(id).bind(number).run();
        else
            known.insert(number);
    for (const SharedVersion& version : versions) {
        VersionRecord record = version.record;
        record.function = id;
        if (!known.contains(record.number)) {
            insert_version(database, record);
            continue;
        }
        const VersionRecord here = load_version(database, id, record.number);
        if (here == record)
            continue;
        // What was to be compressed or warmed up here has been replaced, so that is over.
        database
            .prepare(
                "UPDATE version SET snapshot = (SELECT id FROM snapshot WHERE digest = ?1), manifest = ?2, created "
                "= ?3, state = ?4, tenant = ?5, ceilings = ?6, compress_later = compress_later * ?7, warms_until "
                "= warms_until * ?7 WHERE function = ?8 AND number = ?9")
            .bind(record.snapshot)
            .bind(record.manifest)
            .bind(record.created)
            .bind(name_of(record.state))
            .bind(record.tenant)
            .bind(record.ceilings)
            .bind(std::int64_t{here.snapshot == record.snapshot})
            .bind(id)
            .bind(record.number)
            .run();
    }
}

bool try_copy_function(Store& store, const SharedEntry& entry, const SharedFunction& function) {
    Records records;
    for (const SharedVersion& version : function.versions)
        if (!has_snapshot(*store.index(), version.record.snapshot))
            records.emplace(version.record.snapshot, fetch_record(store, entry.key, version));
    CopyChange change(store, function.record.name);
    Database& database = change.database();
    if (is_older(database, entry.key, entry.revision))
        return true;
    change.touch_files();
    if (!insert_snapshots(store, database, function, records))
        return false;
    FunctionRecord record = function.record;
    record.id = put_function_row(database, record);
    put_versions(database, record.id, function.versions);
    // Another function may have given them up in a change that is still to come.
    for (const Route& route : record.routes)
        database.prepare("DELETE FROM route WHERE host = ? AND path = ?").bind(route.host).bind(route.path).run();
    insert_function_details(database, record);
    std::for_each(function.events.rbegin(), function.events.rend(),
                  [&](const Event& event) { insert_event_row(database, record.id, event); });
    change.commit(entry.key, {entry.revision, false});
    return true;
}

void copy_function(Store& store, const SharedEntry& entry) {
    const SharedFunction function = function_of(store, entry);
    constexpr int kTries = 10; // gc may run at the same time
    for (int i = 0; i < kTries; ++i)
        if (try_copy_function(store, entry, function))
            return;
    throw Conflict(fmt::format("function {}: its snapshots were removed again and again", function.record.name));
}

// Tokens keep the ids by which uploads know them, and when they were used.
void put_tokens(Database& database, std::vector<TokenRow>& tokens) {
    struct Known {
        std::int64_t id;
        std::optional<std::int64_t> last_used;
    };
    std::map<Digest, Known> known;
    auto rows = database.prepare("SELECT hash, id, last_used FROM token");
    while (rows.step())
        known.emplace(rows.digest(0),
                      Known{rows.integer(1), rows.is_null(2) ? std::nullopt : std::optional(rows.integer(2))});
    std::int64_t next = database.number("SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'token'), 0)");
    database.execute("DELETE FROM token");
    for (TokenRow& token : tokens) {
        const auto here = known.find(token.hash);
        token.id = here == known.end() ? ++next : here->second.id;
    }
    insert_settings(database, {.secrets = {}, .grants = {}, .tokens = tokens, .certificates = {}});
    for (const auto& [hash, here] : known)
        if (here.last_used)
            database.prepare("UPDATE token SET last_used = ? WHERE hash = ?").bind(*here.last_used).bind(hash).run();
}

void copy_settings(Store& store, const SharedEntry& entry) {
    Settings settings = settings_of(store, entry);
    CopyChange change(store, "");
    Database& database = change.database();
    if (is_older(database, entry.key, entry.revision))
        return;
    const Settings here = load_settings(database);
    put_tokens(database, settings.tokens);
    settings.tokens.clear();
    database.execute("DELETE FROM secret WHERE function IS NULL");
    if (here.certificates == settings.certificates) // each change makes the daemon read all
        settings.certificates.clear();
    else
        database.execute("DELETE FROM certificate");
    insert_settings(database, settings);
    change.commit(entry.key, {entry.revision, false});
}

} // namespace

SharedFunction function_of(const Store& store, const SharedEntry& entry) {
    SharedFunction function;
    try {
        function = shared_function_from_text(entry.value);
    } catch (const RecordError& error) {
        senseless(store, entry.key, error.what());
    }
    if (shared_key(function.record.name) != entry.key)
        senseless(store, entry.key, "it is of another function");
    return function;
}

Settings settings_of(const Store& store, const SharedEntry& entry) {
    try {
        return settings_from_record(entry.value);
    } catch (const RecordError& error) {
        senseless(store, entry.key, error.what());
    }
}

void copy_entry(Store& store, const SharedEntry& entry) {
    if (entry.key.starts_with(kSharedFunctions))
        copy_function(store, entry);
    else if (entry.key == kSharedSettings)
        copy_settings(store, entry);
    else if (entry.key.starts_with(kSharedDrained))
        copy_drained(*store.index(), entry.key, entry.revision, true);
}

void copy_deletion(Store& store, const std::string& key, std::int64_t revision) {
    if (key.starts_with(kSharedDrained))
        return copy_drained(*store.index(), key, revision, false);
    if (!key.starts_with(kSharedFunctions))
        return;
    const std::string name = key.substr(kSharedFunctions.size());
    check_function_name(name);
    CopyChange change(store, name);
    if (copied(change.database(), key).revision > revision)
        return;
    auto found = change.database().prepare("SELECT id FROM function WHERE name = ?");
    if (found.bind(name).step())
        remove_function(change.database(), found.integer(0));
    change.commit(key, {revision, true});
}

void catch_up(Store& store, const std::string& key) {
    if (!store.shared())
        return;
    const auto entry = store.shared()->get(key);
    if (const auto unknown = entry ? unknown_field(*entry) : std::nullopt)
        throw Conflict(
            fmt::format("{} in {} has the field \"{}\" of a newer kvmserver, which this one serves but would "
                        "lose by a change: make the change through a node that has the newer version",
                        tinykvm::brief(key), store.shared()->name(), tinykvm::brief(*unknown)));
    copy_newest(store, key, entry);
}

void bring_newest(Store& store, const std::string& key) {
    if (store.shared())
        copy_newest(store, key, store.shared()->get(key));
}

CopiedAll copy_all(Store& store) {
    std::map<std::string, std::int64_t> there;
    CopiedAll result;
    auto here_now = all_copied(*store.index()); // before list(): what is made meanwhile has a later revision
    result.revision = store.shared()->list([&](const SharedEntry& entry) {
        if (is_copied(entry.key))
            there.emplace(entry.key, entry.revision);
    });
    const auto newest = std::ranges::max_element(here_now, {}, [](const auto& one) { return one.second.revision; });
    if (newest != here_now.end() && newest->second.revision > result.revision)
        throw UserError(ExitCode::conflict,
                        fmt::format("{} has an older state than this store has copied from it, as from a backup: stop "
                                    "the daemons, remove the file \"cluster\" in each store and start them again: the "
                                    "newest state of each function stays",
                                    store.shared()->name()));
    std::set<std::string> surplus; // keys of what is here only
    for (const auto& [key, here] : here_now)
        if (key.starts_with(kSharedDrained) && !here.gone && !there.contains(key))
            surplus.insert(key);
    {
        auto index = store.index();
        auto names = index->prepare("SELECT name FROM function");
        while (names.step())
            if (const std::string key = shared_key(names.text(0)); !there.contains(key))
                surplus.insert(key);
    }
    const auto try_to = [&](const auto& action) {
        try {
            action();
            ++result.changed;
        } catch (const IndexAway&) {
            throw;
        } catch (const UserError& error) {
            result.failed.push_back(error.what());
        }
    };
    for (const std::string& key : surplus)
        // One that was made since list() has a later revision.
        try_to([&] { copy_deletion(store, key, result.revision); });
    for (const auto& entry : there)
        if (here_now[entry.first].revision < entry.second)
            try_to([&] { copy_newest(store, entry.first, store.shared()->get(entry.first)); });
    if (!result.failed.empty())
        return result;
    auto index = store.index();
    Transaction transaction(*index);
    note_followed(*index, result.revision);
    transaction.commit();
    return result;
}

} // namespace kvmserver::store
