#include "src/store/verify.hpp"

#include <fmt/format.h>

#include <memory>

#include "src/store/errors.hpp"
#include "src/store/function_change.hpp"
#include "src/store/index_file.hpp"
#include "src/store/rebuild.hpp"
#include "src/store/snapshot_record.hpp"

namespace kvmserver::store {

namespace {

// Throws IndexDamaged for anything that the rules of the index forbid.
void check_rows(const Database& database) {
    auto integrity = database.prepare("PRAGMA integrity_check(1)");
    if (!integrity.step() || integrity.text(0) != "ok")
        database.damaged("SQLite finds it damaged: " + integrity.text(0));
    if (database.prepare("PRAGMA foreign_key_check").step())
        database.damaged("rows name others that are not there");
    auto functions = database.prepare("SELECT id FROM function");
    while (functions.step()) {
        load_function(database, functions.integer(0));
        for (const std::uint64_t number : version_numbers(database, functions.integer(0)))
            load_version(database, functions.integer(0), number);
    }
    auto snapshots = database.prepare("SELECT digest FROM snapshot");
    while (snapshots.step())
        load_snapshot(database, snapshots.digest(0));
}

// Before a damaged index is given up: records of what is sound in it. Nothing is removed: it may be wrong about that.
void salvage(Folder& folder, const Database& database) {
    const auto each = [&](std::string_view sql, const auto& save) {
        try {
            auto rows = database.prepare(sql);
            while (rows.step()) {
                try {
                    save(rows);
                } catch (const UserError&) { // that one is not sound: its record, if there is one, is what we have
                }
            }
        } catch (const UserError&) {
        }
    };
    each("SELECT digest FROM snapshot", [&](const Statement& row) {
        const SnapshotRecord snapshot = load_snapshot(database, row.digest(0));
        if (!folder.size_of(snapshot_record_path(snapshot.digest)))
            folder.put(snapshot_record_path(snapshot.digest), to_record(snapshot));
    });
    each("SELECT name FROM function", [&](const Statement& row) {
        const std::string name = row.text(0);
        check_function_name(name); // it becomes a path
        align_records(folder, database, name, Extra::keep);
    });
}

void rebuild_damaged(const std::filesystem::path& path, const VerifyOptions& options, const std::string& why, Findings& findings) {
    Folder folder(path, options.store.files);
    const auto alone = FileLock::exclusive_within(folder, kIndexLock, options.store.busy_ms);
    if (!alone)
        throw UserError(ExitCode::conflict, fmt::format("{}: other processes use the store: stop them and try again", why));
    IndexFile file(folder, options.store.migrations, options.store.busy_ms);
    try {
        const IndexLook look = file.look();
        if (look.state != IndexState::current)
            return; // opening it sees to that
        const Database database = file.open();
        try {
            check_rows(database);
            return; // somebody else was faster
        } catch (const UserError&) {
            salvage(folder, database);
        }
    } catch (const IndexDamaged&) { // not even readable
    }
    findings.push_back({Finding::Kind::repaired, fmt::format("{}; it is kept as {}", why, file.set_aside())});
    rebuild_index(folder, file, findings);
}

std::unique_ptr<Store> open_sound(const std::filesystem::path& path, const VerifyOptions& options, Findings& findings) {
    for (int attempt = 0;; ++attempt) {
        std::string why;
        try {
            auto store = std::make_unique<Store>(path, options.store);
            for (const std::string& note : store->notes())
                findings.push_back({Finding::Kind::repaired, note});
            check_rows(*store->index());
            return store;
        } catch (const IndexDamaged& e) {
            if (!options.repair || attempt > 0)
                throw;
            why = e.what();
        }
        rebuild_damaged(path, options, why, findings);
    }
}

} // namespace

VerifyReport verify(const std::filesystem::path& path, const VerifyOptions& options) {
    VerifyReport report;
    const auto store = open_sound(path, options, report.findings);
    verify_records(*store, options, report);
    verify_chunks(*store, options, report);
    auto index = store->index();
    report.functions = static_cast<std::uint64_t>(index->number("SELECT count(*) FROM function"));
    report.versions = static_cast<std::uint64_t>(index->number("SELECT count(*) FROM version"));
    report.snapshots = static_cast<std::uint64_t>(index->number("SELECT count(*) FROM snapshot"));
    report.chunks = static_cast<std::uint64_t>(index->number("SELECT count(*) FROM chunk"));
    report.bytes = static_cast<std::uint64_t>(index->number("SELECT coalesce(sum(size), 0) FROM chunk"));
    return report;
}

} // namespace kvmserver::store
