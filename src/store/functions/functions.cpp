// The part of Functions that makes changes; function_read.cpp has the read-only part.
#include "src/store/functions/functions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "src/common/clock.hpp"
#include "src/store/errors.hpp"
#include "src/store/functions/deploy_change.hpp"
#include "src/store/shared/generation.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::store {

namespace {

// Most warm-ups end in 10 s (--max-warmup-time). A later one is taken too, unless the snapshot was compressed
// meanwhile.
constexpr std::int64_t kWarmUpMs = 10 * 60 * 1000;

std::uint64_t next_version(FunctionChange& change, std::uint64_t at_least) {
    auto& database = change.database();
    database.prepare("UPDATE function SET last_version = max(last_version + 1, ?) WHERE id = ?")
        .bind(at_least)
        .bind(change.id())
        .run();
    auto number = database.prepare("SELECT last_version FROM function WHERE id = ?");
    number.bind(change.id()).step();
    return number.natural(0);
}

void replace_env(FunctionChange& change, const std::map<std::string, std::string>& env) {
    change.database().prepare("DELETE FROM env WHERE function = ?").bind(change.id()).run();
    auto insert = change.database().prepare("INSERT INTO env (function, name, value) VALUES (?, ?, ?)");
    for (const auto& [name, value] : env) {
        check_variable_name(name);
        check_variable_value(name, value);
        insert.bind(change.id()).bind(name).bind(value).run();
    }
}

void replace_secrets(FunctionChange& change, const std::map<std::string, std::string>& secrets) {
    change.database().prepare("DELETE FROM secret WHERE function = ?").bind(change.id()).run();
    auto insert = change.database().prepare(
        "INSERT INTO secret (function, name, value, changed, grants) VALUES (?, ?, ?, ?, '')");
    for (const auto& [name, value] : secrets) {
        check_variable_name(name);
        check_variable_value(name, value);
        insert.bind(std::optional(change.id())).bind(name).bind(value).bind(now_ms()).run();
    }
}

// What a later snapshot of a version depends on (VersionInfo).
struct VersionMarks {
    bool compress_later = false;
    std::int64_t warms_until = 0;
};

void mark(FunctionChange& change, std::uint64_t version, const VersionMarks& marks) {
    change.database()
        .prepare("UPDATE version SET compress_later = ?, warms_until = ? WHERE function = ? AND number = ?")
        .bind(std::int64_t{marks.compress_later})
        .bind(marks.warms_until)
        .bind(change.id())
        .bind(version)
        .run();
}

// Size of the version's snapshot, and of its chunks that no earlier version of the function has. What other functions
// have is not asked: the history must not tell tenants of it. The inner queries depend on no row of the outer ones, so
// each runs once. Otherwise the tenth deploy of a Node snapshot takes 12 ms here.
void measure(const Database& database, std::int64_t function, std::uint64_t version, Event& event) {
    auto sizes = database.prepare(
        "SELECT s.size, (SELECT coalesce(sum(size), 0) FROM chunk WHERE id IN (SELECT chunk FROM piece WHERE "
        "snapshot = (SELECT snapshot FROM version WHERE function = ?1 AND number = ?2)) AND id NOT IN (SELECT chunk "
        "FROM piece WHERE snapshot IN (SELECT snapshot FROM version WHERE function = ?1 AND number < ?2))) "
        "FROM version v JOIN snapshot s ON s.id = v.snapshot WHERE v.function = ?1 AND v.number = ?2");
    sizes.bind(function).bind(version).step();
    event.bytes = sizes.natural(0);
    event.new_bytes = sizes.natural(1);
}

// The history has the sizes of the snapshot that takes the place of the first one.
void measure_again(FunctionChange& change, std::uint64_t version) {
    Event event;
    measure(change.database(), change.id(), version, event);
    change.database()
        .prepare("UPDATE event SET bytes = ?, new_bytes = ? WHERE function = ? AND action = ? AND subject = ?")
        .bind(*event.bytes)
        .bind(*event.new_bytes)
        .bind(change.id())
        .bind(name_of(Action::deploy))
        .bind(fmt::format("v{}", version))
        .run();
}

// The version that the next one is compared with: the one with most requests, else the newest.
std::optional<VersionRecord> latest(const Database& database, const FunctionRecord& function) {
    const auto most = std::ranges::max_element(function.live, {},
                                               [](const Live& live) { return std::pair(live.percent, live.version); });
    if (most != function.live.end())
        return load_version(database, function.id, most->version);
    const auto numbers = version_numbers(database, function.id);
    return numbers.empty() ? std::nullopt : std::optional(load_version(database, function.id, numbers.back()));
}

std::string change_text(const DeployRequest& request, const FunctionRecord& before,
                        const std::optional<VersionRecord>& version) {
    std::string text = request.activate ? "" : "not live";
    const auto add = [&](const std::string& part) { text += (text.empty() || part.empty() ? "" : ", ") + part; };
    if (!version) {
        add("first version");
        return text;
    }
    add(deploy_change({version->manifest, before.routes, before.env},
                      {request.manifest, request.routes.value_or(before.routes), request.env.value_or(before.env)}));
    add(request.snapshot == version->snapshot ? "same snapshot" : "snapshot");
    return text;
}

} // namespace

Event Functions::event(Action action, std::string subject, const std::string& message) const {
    Event event;
    event.author = author_;
    event.action = name_of(action);
    event.subject = std::move(subject);
    event.message = message;
    return event;
}

DeployResult Functions::deploy(const DeployRequest& request) {
    check_manifest(request.manifest);
    DeployResult result;
    with_chunks_in_bucket(store_, {&request.snapshot, 1}, [&] { result = deploy_now(request); });
    return result;
}

DeployResult Functions::deploy_now(const DeployRequest& request) {
    if (request.routes)
        bring_owners(request.function, *request.routes);
    FunctionChange change(store_, request.function, request.if_match, FunctionChange::Missing::make);
    DeployResult result;
    const FunctionRecord before = load_function(change.database(), change.id());
    result.before = before.live;
    const auto compared = latest(change.database(), before);
    result.version = next_version(change, request.at_least);
    change.add({change.id(), request.function, result.version, request.snapshot, request.manifest, now_ms(),
                request.state, request.tenant, request.ceilings});
    mark(change, result.version, {request.compress_later, request.warms_up ? now_ms() + kWarmUpMs : 0});
    if (request.routes)
        change.take_routes(*request.routes);
    if (request.env)
        replace_env(change, *request.env);
    if (request.secrets)
        replace_secrets(change, *request.secrets);
    if (request.activate)
        change.set_traffic({{result.version, 100}});
    Event deployed = event(Action::deploy, fmt::format("v{}", result.version), request.message);
    deployed.change = change_text(request, before, compared);
    measure(change.database(), change.id(), result.version, deployed);
    const FunctionRecord now = change.commit(deployed);
    result.live = now.live;
    result.etag = now.etag();
    return result;
}

void Functions::set_state(const std::string& name, std::uint64_t version, VersionState state, const IfMatch& if_match) {
    FunctionChange change(store_, name, if_match);
    VersionRecord record = load_version(change.database(), change.id(), version);
    const auto live = load_function(change.database(), change.id()).live;
    const bool is_live =
        std::any_of(live.begin(), live.end(), [&](const Live& part) { return part.version == version; });
    if (is_live && state != VersionState::ready)
        throw Conflict(fmt::format("{} v{} is live: move its traffic to another version first", name, version));
    record.state = state;
    change.replace(record);
    change.commit(event(Action::set_state, fmt::format("v{} {}", version, name_of(state))));
}

bool Functions::compressed(const std::string& name, std::uint64_t version, const Digest& hurried, const Digest& anew) {
    bool done = false;
    with_chunks_in_bucket(store_, {&anew, 1}, [&] { done = compressed_now(name, version, hurried, anew); });
    return done;
}

bool Functions::compressed_now(const std::string& name, std::uint64_t version, const Digest& hurried,
                               const Digest& anew) {
    try {
        FunctionChange change(store_, name, {});
        VersionRecord record = load_version(change.database(), change.id(), version);
        if (record.snapshot != hurried)
            return false;
        record.snapshot = anew;
        change.replace(record);
        mark(change, version, {});
        measure_again(change, version);
        change.commit_unasked();
        return true;
    } catch (const NotFound&) {
        return false;
    }
}

Digest Functions::warmed(const std::string& name, std::uint64_t version, const Digest& warmed, bool compress_later) {
    Digest before;
    with_chunks_in_bucket(store_, {&warmed, 1}, [&] { before = warmed_now(name, version, warmed, compress_later); });
    return before;
}

Digest Functions::warmed_now(const std::string& name, std::uint64_t version, const Digest& warmed,
                             bool compress_later) {
    FunctionChange change(store_, name, {});
    VersionRecord record = load_version(change.database(), change.id(), version);
    auto warms_until = change.database().prepare("SELECT warms_until FROM version WHERE function = ? AND number = ?");
    warms_until.bind(change.id()).bind(version).step();
    if (warms_until.integer(0) == 0)
        throw Conflict(fmt::format("the snapshot of {} v{} is final: deploy another version", name, version));
    const Digest before = std::exchange(record.snapshot, warmed);
    change.replace(record);
    mark(change, version, {.compress_later = compress_later});
    measure_again(change, version);
    change.commit_unasked();
    return before;
}

Functions::Switched Functions::switch_to(FunctionChange& change, const std::vector<Live>& live, Action action,
                                         const std::string& message) {
    Switched switched;
    switched.before = load_function(change.database(), change.id()).live;
    change.set_traffic(live);
    switched.live = load_function(change.database(), change.id()).live;
    const std::string subject = fmt::format("{} -> {}", live_text(switched.before), live_text(switched.live));
    switched.etag = change.commit(event(action, subject, message)).etag();
    return switched;
}

Functions::Switched Functions::set_traffic(const std::string& name, const std::vector<Live>& live,
                                           const IfMatch& if_match, const std::string& message) {
    FunctionChange change(store_, name, if_match);
    return switch_to(change, live, Action::traffic, message);
}

Functions::Switched Functions::rollback(const std::string& name, std::optional<std::uint64_t> version,
                                        const IfMatch& if_match, const std::string& message) {
    FunctionChange change(store_, name, if_match);
    if (!version) {
        const auto before = load_function(change.database(), change.id()).live;
        // Among equals the newest.
        const auto most = std::ranges::max_element(
            before, {}, [](const Live& live) { return std::pair(live.percent, live.version); });
        if (most == before.end())
            throw Conflict(fmt::format("{} has no live version to roll back from: name the version", name));
        auto older = change.database().prepare(
            "SELECT max(number) FROM version WHERE function = ? AND number < ? AND state = 'ready'");
        older.bind(change.id()).bind(most->version).step();
        if (older.is_null(0))
            throw NotFound(fmt::format("{} has no ready version before v{}: `kvmserver versions {}` lists them", name,
                                       most->version, name));
        version = older.natural(0);
    }
    return switch_to(change, {{*version, 100}}, Action::rollback, message);
}

void Functions::move(const std::string& name, std::uint64_t version, const Moved& moved, const IfMatch& if_match) {
    FunctionChange change(store_, name, if_match);
    if (load_function(change.database(), change.id()).live != std::vector<Live>{{version, 100}})
        throw Conflict(fmt::format("v{} of {} has not all requests any more", version, name));
    change.set_moved(moved);
    change.commit(event(Action::migrate, fmt::format("v{} -> {}", version, tinykvm::brief(moved.to))));
}

void Functions::move_is_over(const std::string& name) {
    try {
        FunctionChange change(store_, name, {});
        FunctionRecord now = load_function(change.database(), change.id());
        if (!now.moved || !now.moved->pending)
            return;
        Moved over = *std::move(now.moved);
        over.pending = false;
        over.token = "";
        change.set_moved(over);
        change.commit_unasked();
    } catch (const NotFound&) { // deleted meanwhile
    }
}

void Functions::stay(const std::string& name) {
    try {
        FunctionChange change(store_, name, {});
        if (!load_function(change.database(), change.id()).moved)
            return;
        change.set_moved({});
        change.commit(event(Action::migrate, "it stays"));
    } catch (const NotFound&) { // deleted meanwhile
    }
}

void Functions::take_over(const std::string& name, std::uint64_t version) {
    FunctionChange change(store_, name, {});
    VersionRecord record = load_version(change.database(), change.id(), version);
    if (record.state == VersionState::ready)
        return;
    if (record.state == VersionState::failed)
        throw Conflict(fmt::format("{} v{} has failed", name, version));
    record.state = VersionState::ready;
    change.replace(record);
    change.set_moved({});
    change.set_traffic({{version, 100}});
    change.commit(event(Action::take_over, fmt::format("v{}", version)));
}

std::string Functions::set_routes(const std::string& name, const std::vector<Route>& routes, const IfMatch& if_match) {
    bring_owners(name, routes);
    FunctionChange change(store_, name, if_match);
    change.take_routes(routes);
    std::string subject;
    for (const Route& route : routes)
        subject += (subject.empty() ? "" : " ") + route.text();
    return change.commit(event(Action::set_routes, tinykvm::brief(subject))).etag();
}

std::string Functions::set_env(const std::string& name, const std::string& variable,
                               const std::optional<std::string>& value, const IfMatch& if_match) {
    check_variable_name(variable);
    if (value)
        check_variable_value(variable, *value);
    FunctionChange change(store_, name, if_match);
    change.database().prepare("DELETE FROM env WHERE function = ? AND name = ?").bind(change.id()).bind(variable).run();
    if (!value && change.database().changes() == 0)
        throw NotFound(fmt::format("{} has no value {}: `kvmserver env list {}` lists them", name, variable, name));
    if (value)
        change.database()
            .prepare("INSERT INTO env (function, name, value) VALUES (?, ?, ?)")
            .bind(change.id())
            .bind(variable)
            .bind(*value)
            .run();
    return change.commit(event(value ? Action::set_env : Action::unset_env, variable)).etag();
}

void Functions::remove(const std::string& name, const IfMatch& if_match) {
    FunctionChange change(store_, name, if_match);
    change.commit_removal();
}

void Functions::remove_version(const std::string& name, std::uint64_t version, const IfMatch& if_match) {
    FunctionChange change(store_, name, if_match);
    load_version(change.database(), change.id(), version); // throws NotFound
    for (const Live& part : load_function(change.database(), change.id()).live)
        if (part.version == version)
            throw Conflict(fmt::format("{} v{} is live: move its traffic to another version first", name, version));
    change.remove(version);
    change.commit(event(Action::delete_version, fmt::format("v{}", version)));
}

} // namespace kvmserver::store
