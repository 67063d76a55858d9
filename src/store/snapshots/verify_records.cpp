// The part of verify that compares rows and records. The rows have been checked, so where both differ, the index is
// right. But a record without a row may be all that is left of an entry.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "src/store/errors.hpp"
#include "src/store/files/record.hpp"
#include "src/store/functions/function_change.hpp"
#include "src/store/functions/settings_record.hpp"
#include "src/store/snapshots/restore.hpp"
#include "src/store/snapshots/snapshot_record.hpp"
#include "src/store/snapshots/sweep.hpp"
#include "src/store/snapshots/uploads.hpp"
#include "src/store/snapshots/verify.hpp"

namespace kvmserver::store {

namespace {

class RecordCheck {
public:
    RecordCheck(Store& store, Database& database, bool repair, Findings& findings)
        : folder_(store.folder()), database_(database), repair_(repair), findings_(findings) {}

    void snapshots();
    void functions();
    void settings();
    void uploads();
    void leftovers(const FileLock& sweeping);

private:
    void say(const std::string& path, const std::string& what) {
        findings_.push_back({repair_ ? Finding::Kind::repaired : Finding::Kind::repairable,
                             fmt::format("{}: {}", folder_.full(path), what)});
    }
    // A failed repair becomes a finding, and the next one is tried.
    template <class Action>
    void attempt(const std::string& path, const Action& action) {
        try {
            action();
        } catch (const HostError& e) {
            findings_.push_back(
                {Finding::Kind::broken, fmt::format("{}: cannot be repaired: {}", folder_.full(path), e.what())});
        }
    }
    void snapshot_without_row(const std::string& file);
    void function_without_row(const std::string& name);
    void versions_without_row(const std::string& name, std::int64_t id);

    Folder& folder_;
    Database& database_;
    bool repair_;
    Findings& findings_;
};

bool reads(const Folder& folder, const std::string& path, const std::string& text) {
    return folder.size_of(path) == text.size() && folder.read(path, kMaxRecordBytes) == text;
}

void RecordCheck::snapshot_without_row(const std::string& file) {
    const std::string path = fmt::format("{}/{}", kSnapshots, file);
    if (!repair_)
        return say(path, "its row in the index is missing");
    Findings why; // dropped: an incomplete snapshot that no version names is left over from a dead import, not an error
    if (Restorer(folder_, database_, why).restore_snapshot(file))
        return say(path, "its row in the index was missing and is restored");
    folder_.remove(path);
    say(path, "removed: the rest of an import that did not end");
}

void RecordCheck::snapshots() {
    for (const std::string& file : folder_.list(kSnapshots)) {
        const auto digest =
            file.size() == 69 && file.ends_with(".json") ? Digest::from_hex(file.substr(0, 64)) : std::nullopt;
        const std::string path = fmt::format("{}/{}", kSnapshots, file);
        if (!digest)
            findings_.push_back(
                {Finding::Kind::note, fmt::format("{}: is not part of a store; left alone", folder_.full(path))});
        else if (!has_snapshot(database_, *digest))
            attempt(path, [&] { snapshot_without_row(file); });
    }
    bool written = false;
    auto rows = database_.prepare("SELECT digest FROM snapshot");
    while (rows.step()) {
        const SnapshotRecord snapshot = load_snapshot(database_, rows.digest(0));
        const std::string path = snapshot_record_path(snapshot.digest), text = to_record(snapshot);
        attempt(path, [&] {
            if (reads(folder_, path, text))
                return;
            if (repair_)
                folder_.put(path, text);
            written = repair_;
            say(path, repair_ ? "written anew from the index" : "is missing or altered");
        });
    }
    if (written)
        folder_.sync_folder(kSnapshots);
}

void RecordCheck::function_without_row(const std::string& name) {
    const std::string path = function_folder(name);
    if (!repair_)
        return say(path, "the function's row in the index is missing");
    std::int64_t last_id = 0;
    if (auto sequence = database_.prepare("SELECT seq FROM sqlite_sequence WHERE name = 'function'"); sequence.step())
        last_id = sequence.integer(0);
    bool never_committed = false;
    try {
        never_committed = function_from_record(read_record(folder_, function_record_path(name))).id > last_id;
    } catch (const RecordError&) {
        // A first deploy that died before it wrote function.json: look at its version's record instead.
        for (const std::string& file : folder_.list(path)) {
            try {
                const std::string record = read_record(folder_, fmt::format("{}/{}", path, file));
                never_committed |= version_from_record(record).function > last_id;
            } catch (const RecordError&) {
            }
        }
        never_committed |= folder_.list(path).empty();
    }
    if (never_committed) {
        folder_.remove_tree(path);
        return say(path, "removed: the rest of a first deploy that did not end");
    }
    if (Restorer(folder_, database_, findings_).restore_function(name))
        say(path, "the function's row in the index was missing and is restored");
}

void RecordCheck::versions_without_row(const std::string& name, std::int64_t id) {
    const auto numbers = version_numbers(database_, id);
    const std::uint64_t last = load_function(database_, id).last_version;
    for (const std::string& file : folder_.list(function_folder(name))) {
        std::uint64_t number = 0;
        const auto [end, error] = std::from_chars(file.data(), file.data() + file.size(), number);
        if (error != std::errc() || std::string_view(end) != ".json" || number == 0 || number > last ||
            std::find(numbers.begin(), numbers.end(), number) != numbers.end())
            continue;
        const std::string path = version_record_path(name, number);
        if (!repair_)
            say(path, "its row in the index is missing");
        else if (Restorer(folder_, database_, findings_).restore_version(name, file, id))
            say(path, "its row in the index was missing and is restored");
    }
}

void RecordCheck::functions() {
    for (const std::string& name : folder_.list(kFunctions)) {
        const std::string path = function_folder(name);
        if (!is_function_name(name) || folder_.size_of(path))
            findings_.push_back(
                {Finding::Kind::note, fmt::format("{}: is not part of a store; left alone", folder_.full(path))});
        else if (!database_.prepare("SELECT 1 FROM function WHERE name = ?").bind(name).step())
            attempt(path, [&] { function_without_row(name); });
    }
    auto rows = database_.prepare("SELECT id, name FROM function ORDER BY name");
    while (rows.step()) {
        const std::string name = rows.text(1);
        attempt(function_folder(name), [&] {
            versions_without_row(name, rows.integer(0));
            if (repair_) {
                for (std::string& line : align_records(folder_, database_, name))
                    findings_.push_back({Finding::Kind::repaired, std::move(line)});
            } else if (!reads(folder_, function_record_path(name),
                              to_record(load_function(database_, rows.integer(0))))) {
                say(function_record_path(name), "is missing or altered");
            }
        });
    }
}

void RecordCheck::settings() {
    attempt(kSettings, [&] {
        if (repair_ && align_settings(folder_, database_))
            say(kSettings, "written anew from the index");
    });
}

void RecordCheck::uploads() {
    std::vector<std::string> lost;
    auto rows = database_.prepare("SELECT id, durable FROM upload");
    while (rows.step())
        if (folder_.size_of(upload_path(rows.text(0))).value_or(0) < rows.natural(1) ||
            !folder_.size_of(upload_path(rows.text(0))))
            lost.push_back(rows.text(0));
    for (const std::string& id : lost) {
        if (repair_)
            database_.prepare("DELETE FROM upload WHERE id = ?").bind(id).run();
        say(upload_path(id), "bytes of this upload are lost: it must begin again");
    }
}

void RecordCheck::leftovers(const FileLock& sweeping) {
    const Leftovers leftovers = find_leftovers(folder_, database_, read_marks(folder_, sweeping));
    for (const std::string& path : leftovers.paths)
        attempt(path, [&] {
            if (repair_)
                folder_.remove_tree(path);
            say(path, "left over from a process that died");
        });
}

} // namespace

void verify_records(Store& store, const VerifyOptions& options, VerifyReport& report) {
    const FileLock sweeping = store.sweeping();
    auto index = store.index();
    Transaction transaction(*index);
    RecordCheck check(store, *index, options.repair, report.findings);
    check.snapshots();
    check.functions();
    check.settings();
    check.uploads();
    check.leftovers(sweeping);
    transaction.commit();
}

} // namespace kvmserver::store
