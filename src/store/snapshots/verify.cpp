#include "src/store/snapshots/verify.hpp"

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "src/store/errors.hpp"
#include "src/store/files/record.hpp"
#include "src/store/functions/function_record.hpp"
#include "src/store/index/index_file.hpp"
#include "src/store/index/rebuild.hpp"
#include "src/store/snapshots/chunk_files.hpp"
#include "src/store/snapshots/restore.hpp"
#include "src/store/snapshots/snapshot_record.hpp"

namespace kvmserver::store {

namespace {

// Reads a record; nullopt when it is damaged or missing.
template <class Parse>
auto intact(const Folder& folder, const std::string& path, const Parse& parse)
    -> std::optional<decltype(parse(std::string_view()))> {
    try {
        return parse(read_record(folder, path));
    } catch (const RecordError&) {
    } catch (const HostError&) {
    }
    return std::nullopt;
}

// SQLite has no checksums, but records have. An intact record that differs from its row shows that the row was altered,
// unless the record is one revision ahead because the process died before the transaction was committed.
void check_function(const Folder& folder, const Database& database, std::int64_t id) {
    const FunctionRecord row = load_function(database, id);
    const auto record = intact(folder, function_record_path(row.name), function_from_record);
    const bool ours = record && record->id == id;
    if (ours && *record != row && record->revision != row.revision + 1)
        database.damaged(fmt::format("function {} is not what its record says", row.name));
    for (const std::uint64_t number : version_numbers(database, id)) {
        const VersionRecord version = load_version(database, id, number);
        auto kept = intact(folder, version_record_path(row.name, number), version_from_record);
        if (!kept || kept->function != id)
            continue;
        kept->state = version.state; // the version's record is written before the function's
        if (*kept != version)
            database.damaged(fmt::format("{} v{} is not what its record says", row.name, number));
    }
}

// Throws IndexDamaged for any violation of the index's rules. The store must not change meanwhile.
void check_rows(const Folder& folder, const Database& database) {
    auto integrity = database.prepare("PRAGMA integrity_check(1)");
    if (!integrity.step() || integrity.text(0) != "ok")
        database.damaged("SQLite finds it damaged: " + integrity.text(0));
    if (database.prepare("PRAGMA foreign_key_check").step())
        database.damaged("rows refer to missing rows");
    auto functions = database.prepare("SELECT id FROM function");
    while (functions.step())
        check_function(folder, database, functions.integer(0));
    auto snapshots = database.prepare("SELECT digest FROM snapshot");
    while (snapshots.step()) {
        const SnapshotRecord row = load_snapshot(database, snapshots.digest(0));
        const auto record = intact(folder, snapshot_record_path(row.digest), snapshot_from_record);
        if (record && record->digest == row.digest && *record != row)
            database.damaged(fmt::format("snapshot {} is not what its record says", row.digest.hex()));
    }
}

Digest digest_of_pieces(const Folder& folder, const SnapshotRecord& snapshot) {
    Sha256 sum;
    for (const ChunkRef& piece : snapshot.pieces)
        read_chunk(folder, piece.digest, piece.length, [&](std::span<const std::byte> bytes) { sum.update(bytes); });
    return sum.finish();
}

// Before a damaged index is given up, writes records for its sound rows that have no intact record. Existing records
// are not changed: the index may be wrong.
void salvage(Folder& folder, const Database& database) {
    const auto each = [&](std::string_view sql, const auto& save) {
        try {
            auto rows = database.prepare(sql);
            while (rows.step()) {
                try {
                    save(rows);
                } catch (const UserError&) { // skip: not sound
                }
            }
        } catch (const UserError&) {
        }
    };
    each("SELECT digest FROM snapshot", [&](const Statement& row) {
        const SnapshotRecord snapshot = load_snapshot(database, row.digest(0));
        const std::string path = snapshot_record_path(snapshot.digest);
        if (!intact(folder, path, snapshot_from_record) && digest_of_pieces(folder, snapshot) == snapshot.digest)
            folder.put(path, to_record(snapshot));
    });
    each("SELECT id FROM function", [&](const Statement& row) {
        // load_function() has checked the name, so it can be used in a path.
        const FunctionRecord function = load_function(database, row.integer(0));
        folder.make_folder(function_folder(function.name));
        if (!intact(folder, function_record_path(function.name), function_from_record))
            folder.put(function_record_path(function.name), to_record(function));
        for (const std::uint64_t number : version_numbers(database, function.id)) {
            const std::string path = version_record_path(function.name, number);
            if (!intact(folder, path, version_from_record))
                folder.put(path, to_record(load_version(database, function.id, number)));
        }
    });
}

void rebuild_damaged(const std::filesystem::path& path, const VerifyOptions& options, const std::string& why,
                     Findings& findings) {
    Folder folder(path, options.store.files);
    const auto alone = FileLock::exclusive_within(folder, kIndexLock, options.store.busy_ms);
    if (!alone)
        throw UserError(ExitCode::conflict,
                        fmt::format("{}: other processes use the store: stop them and try again", why));
    IndexFile file(folder, options.store.migrations, options.store.busy_ms);
    try {
        const IndexLook look = file.look();
        if (look.state != IndexState::current)
            return; // the next open migrates or rebuilds it
        const Database database = file.open();
        try {
            check_rows(folder, database);
            return; // another process has repaired it
        } catch (const UserError&) {
            salvage(folder, database);
        }
    } catch (const IndexDamaged&) { // unreadable: nothing to salvage
    }
    findings.push_back({Finding::Kind::repaired, fmt::format("{}; it is kept as {}", why, file.set_aside())});
    rebuild_index(folder, file, findings);
}

std::unique_ptr<Store> open_sound(const std::filesystem::path& path, const VerifyOptions& options, Findings& findings) {
    for (int attempt = 0;; ++attempt) {
        std::string why;
        try {
            auto store = std::make_unique<Store>(path, options.store);
            findings.insert(findings.end(), store->notes().begin(), store->notes().end());
            const FileLock sweeping = store->sweeping();
            check_rows(store->folder(), *store->index());
            return store;
        } catch (const IndexDamaged& e) {
            if (!options.repair) {
                findings.push_back({Finding::Kind::repairable, e.what()});
                return nullptr;
            }
            if (attempt > 0)
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
    if (!store)
        return report; // with a damaged index nothing else can be checked
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
