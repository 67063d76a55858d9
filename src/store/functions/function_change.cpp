#include "src/store/functions/function_change.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "src/common/clock.hpp"
#include "src/common/random_hex.hpp"
#include "src/store/errors.hpp"
#include "src/store/files/record.hpp"
#include "src/store/functions/changes.hpp"
#include "src/store/shared/copy.hpp"
#include "src/store/shared/documents.hpp"
#include "src/store/shared/membership.hpp"
#include "src/store/shared/publish.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::store {

namespace {

// In a cluster, the function as all daemons see it now.
Store& prepared(Store& store, const std::string& name) {
    check_function_name(name);
    require_index_of_cluster(store);
    catch_up(store, shared_key(name));
    return store;
}

} // namespace

FunctionChange::FunctionChange(Store& store, const std::string& name, const IfMatch& if_match, Missing missing)
    : store_(prepared(store, name)), name_(name), naming_(store.naming()), index_(store.index()),
      transaction_(*index_) {
    auto found = index_->prepare("SELECT id, revision, tag FROM function WHERE name = ?");
    const bool there = found.bind(name).step();
    const std::string etag = there ? fmt::format("{}-{}", found.text(2), found.integer(1)) : "";
    if (if_match && *if_match != etag)
        throw StaleEtag(name, etag);
    if (there) {
        id_ = found.integer(0);
        if (store.shared())
            routes_before_ = routes_of(*index_, id_);
        return;
    }
    if (missing == Missing::error)
        function_id(*index_, name); // throws NotFound
    const std::int64_t now = now_ms();
    index_
        ->prepare("INSERT INTO function (name, revision, last_version, created, changed, tag) "
                  "VALUES (?, 1, 0, ?, ?, ?)")
        .bind(name)
        .bind(now)
        .bind(now)
        .bind(random_hex(6))
        .run();
    id_ = index_->last_id();
    made_ = true;
}

FunctionChange::~FunctionChange() {
    if (!done_)
        undo();
}

void FunctionChange::add(const VersionRecord& version) {
    insert_version(*index_, version);
    new_snapshots_.push_back(version.snapshot);
    put_.push_back(version);
}

void FunctionChange::replace(const VersionRecord& version) {
    if (store_.shared() && load_version(*index_, id_, version.number).snapshot != version.snapshot)
        new_snapshots_.push_back(version.snapshot);
    index_
        ->prepare("UPDATE version SET state = ?, snapshot = (SELECT id FROM snapshot WHERE digest = ?) "
                  "WHERE function = ? AND number = ?")
        .bind(name_of(version.state))
        .bind(version.snapshot)
        .bind(id_)
        .bind(version.number)
        .run();
    put_.push_back(version);
}

void FunctionChange::remove(std::uint64_t version) {
    index_->prepare("DELETE FROM version WHERE function = ? AND number = ?").bind(id_).bind(version).run();
    removed_.push_back(version);
}

void FunctionChange::take_routes(const std::vector<Route>& routes) {
    for (const Route& route : routes) {
        route.check();
        auto owner = index_->prepare("SELECT f.name FROM route r JOIN function f ON f.id = r.function "
                                     "WHERE r.host = ? AND r.path = ? AND r.function <> ?");
        if (owner.bind(route.host).bind(route.path).bind(id_).step())
            throw RouteTaken(route.text(), owner.text(0));
    }
    index_->prepare("DELETE FROM route WHERE function = ?").bind(id_).run();
    auto insert = index_->prepare("INSERT INTO route (host, path, function) VALUES (?, ?, ?)");
    for (const Route& route : std::set<Route>(routes.begin(), routes.end()))
        insert.bind(route.host).bind(route.path).bind(id_).run();
}

void FunctionChange::set_traffic(std::vector<Live> live) {
    std::sort(live.begin(), live.end(), [](const Live& a, const Live& b) { return a.version < b.version; });
    check_traffic(live);
    if (const FunctionRecord now = load_function(*index_, id_); now.moved)
        throw Conflict(
            fmt::format("{} was migrated to {}: deploy it there, or `kvmserver delete` it here", name_, now.moved->to));
    for (const Live& part : live)
        if (const auto version = load_version(*index_, id_, part.version); version.state != VersionState::ready)
            throw Conflict(
                fmt::format("{} v{} is {}, not ready: it cannot go live", name_, part.version, name_of(version.state)));
    index_->prepare("DELETE FROM traffic WHERE function = ?").bind(id_).run();
    auto insert = index_->prepare("INSERT INTO traffic (function, number, percent) VALUES (?, ?, ?)");
    for (const Live& part : live)
        insert.bind(id_).bind(part.version).bind(std::int64_t{part.percent}).run();
}

void FunctionChange::set_moved(const std::optional<Moved>& moved) {
    if (moved)
        moved->check();
    index_->prepare("UPDATE function SET moved = ? WHERE id = ?").bind(moved ? to_text(*moved) : "").bind(id_).run();
}

FunctionRecord FunctionChange::commit(const Event& event) {
    insert_event(*index_, id_, event);
    if (!made_)
        index_->prepare("UPDATE function SET revision = revision + 1, changed = ? WHERE id = ?")
            .bind(now_ms())
            .bind(id_)
            .run();
    return write_and_commit();
}

FunctionRecord FunctionChange::commit_unasked() { return write_and_commit(); }

FunctionRecord FunctionChange::write_and_commit() {
    note_change(*index_, name_);
    FunctionRecord function = load_function(*index_, id_);
    Folder& folder = store_.folder();
    files_touched_ = true;
    const bool new_folder = folder.make_folder(function_folder(name_));
    for (const VersionRecord& version : put_)
        folder.put(version_record_path(name_, version.number), to_record(version));
    for (const std::uint64_t number : removed_)
        folder.remove(version_record_path(name_, number));
    folder.put(function_record_path(name_), to_record(function));
    folder.sync_folder(function_folder(name_));
    if (new_folder || made_)
        folder.sync_folder(kFunctions);
    publish_function(store_, *index_, id_, routes_before_, new_snapshots_);
    transaction_.commit();
    done_ = true;
    return function;
}

void FunctionChange::commit_removal() {
    note_change(*index_, name_);
    // its foreign keys would keep the versions
    index_->prepare("DELETE FROM traffic WHERE function = ?").bind(id_).run();
    index_->prepare("DELETE FROM function WHERE id = ?").bind(id_).run();
    Folder& folder = store_.folder();
    files_touched_ = true;
    // Records first: a record left behind would look like a lost row.
    folder.remove_tree(function_folder(name_));
    folder.sync_folder(kFunctions);
    publish_removal(store_, *index_, name_, routes_before_);
    transaction_.commit();
    done_ = true;
}

void FunctionChange::undo() noexcept {
    transaction_.roll_back();
    if (!files_touched_)
        return;
    try {
        align_records(store_.folder(), *index_, name_);
    } catch (...) { // verify repairs this later
    }
}

std::vector<std::string> align_records(Folder& folder, const Database& database, const std::string& name) {
    std::vector<std::string> done;
    auto found = database.prepare("SELECT id FROM function WHERE name = ?");
    if (!found.bind(name).step()) {
        folder.remove_tree(function_folder(name));
        folder.sync_folder(kFunctions);
        done.push_back(fmt::format("{}: removed: there is no such function", folder.full(function_folder(name))));
        return done;
    }
    const std::int64_t id = found.integer(0);
    const auto align = [&](const std::string& path, const std::string& text) {
        std::optional<std::string> there;
        if (folder.size_of(path) == text.size()) // with another length the content differs anyway
            there = folder.read(path, kMaxRecordBytes);
        if (there == text)
            return;
        folder.put(path, text);
        done.push_back(fmt::format("{}: written anew from the index", folder.full(path)));
    };
    const bool new_folder = folder.make_folder(function_folder(name));
    std::set<std::string> expected{"function.json"};
    for (const std::uint64_t number : version_numbers(database, id)) {
        align(version_record_path(name, number), to_record(load_version(database, id, number)));
        expected.insert(fmt::format("{}.json", number));
    }
    align(function_record_path(name), to_record(load_function(database, id)));
    for (const std::string& file : folder.list(function_folder(name))) {
        if (expected.contains(file))
            continue;
        const std::string path = function_folder(name) + "/" + file;
        if (folder.remove(path))
            done.push_back(fmt::format("{}: removed: it belongs to no version", folder.full(path)));
    }
    if (!done.empty())
        folder.sync_folder(function_folder(name));
    if (new_folder)
        folder.sync_folder(kFunctions);
    return done;
}

} // namespace kvmserver::store
