// The read-only part of Functions.
#include <fmt/format.h>

#include <set>

#include "src/store/errors.hpp"
#include "src/store/functions/functions.hpp"
#include "src/store/functions/tenant.hpp"
#include "src/store/shared/copy.hpp"
#include "src/store/shared/documents.hpp"

namespace kvmserver::store {

namespace {

constexpr std::string_view kVersionColumns = "SELECT v.number, s.digest, s.size, v.manifest, v.created, "
                                             "v.state, coalesce(t.percent, 0), v.tenant, v.ceilings, "
                                             "v.compress_later, v.warms_until FROM version v "
                                             "JOIN snapshot s ON s.id = v.snapshot LEFT JOIN traffic t ON "
                                             "t.function = v.function AND t.number = v.number "
                                             "WHERE v.function = ? ";

VersionInfo read_version(const Statement& row, const Database& database) {
    VersionInfo version{row.natural(0),
                        row.digest(1),
                        row.natural(2),
                        row.text(3),
                        row.integer(4),
                        {},
                        static_cast<unsigned>(row.natural(6)),
                        row.text(7),
                        row.text(8),
                        row.integer(9) != 0,
                        row.integer(10)};
    const std::string state = row.text(5);
    for (const VersionState known : {VersionState::pending, VersionState::ready, VersionState::failed})
        if (state == name_of(known)) {
            version.state = known;
            return version;
        }
    database.damaged("a version of unknown state");
}

std::optional<Moved> moved_in(const Statement& row, int column, const Database& database) {
    const std::string text = row.text(column);
    if (text.empty())
        return std::nullopt;
    try {
        return moved_from_text(text);
    } catch (const BadValue& e) {
        database.damaged(e.what());
    }
}

} // namespace

std::map<std::string, Moved> Functions::pending_moves() {
    auto index = store_.index();
    std::map<std::string, Moved> pending;
    auto rows = index->prepare("SELECT name, moved FROM function WHERE moved <> ''");
    while (rows.step())
        if (const auto moved = moved_in(rows, 1, *index); moved && moved->pending)
            pending.emplace(rows.text(0), *moved);
    return pending;
}

std::vector<ToCompress> Functions::to_compress() {
    auto index = store_.index();
    std::vector<ToCompress> all;
    auto rows = index->prepare("SELECT f.name, v.number, s.digest, v.tenant, v.warms_until FROM version v "
                               "JOIN function f ON f.id = v.function JOIN snapshot s ON s.id = v.snapshot "
                               "WHERE v.compress_later = 1 ORDER BY NOT EXISTS (SELECT 1 FROM traffic t "
                               "WHERE t.function = v.function AND t.number = v.number), v.created");
    while (rows.step())
        all.push_back({rows.text(0), rows.natural(1), rows.digest(2), rows.text(3), rows.integer(4)});
    return all;
}

namespace {

// Whether a live version of the function keeps its state.
constexpr std::string_view kKept =
    "SELECT 1 FROM traffic t JOIN version v ON v.function = t.function AND v.number = t.number "
    "WHERE t.function = ? AND json_valid(v.manifest) AND json_extract(v.manifest, '$.function.ephemeral') = 0";

} // namespace

std::vector<FunctionSummary> Functions::list(const Page& page) {
    auto index = store_.index();
    const Transaction same_moment(*index, Transaction::Kind::read);
    std::vector<FunctionSummary> functions;
    std::vector<std::int64_t> ids;
    auto heads = index->prepare("SELECT id, name, revision, created, changed, tag, moved FROM function "
                                "WHERE name > ? AND name >= ? AND name < ? ORDER BY name");
    // No name has a character above this one.
    for (heads.bind(page.after).bind(page.prefix).bind(page.prefix + '\x7f'); heads.step();) {
        if (page.limit != 0 && functions.size() == page.limit)
            break;
        if (!in_prefix(heads.text(1), page.prefix))
            continue;
        ids.push_back(heads.integer(0));
        FunctionSummary& function = functions.emplace_back();
        function.name = heads.text(1);
        function.etag = fmt::format("{}-{}", heads.text(5), heads.integer(2));
        function.created = heads.integer(3);
        function.changed = heads.integer(4);
        function.moved = moved_in(heads, 6, *index);
    }
    auto versions = index->prepare("SELECT count(*) FROM version WHERE function = ?");
    auto live = index->prepare("SELECT number, percent FROM traffic WHERE function = ? ORDER BY number");
    auto kept = index->prepare(kKept);
    auto routes = index->prepare("SELECT host, path FROM route WHERE function = ? ORDER BY host, path");
    for (std::size_t i = 0; i < ids.size(); ++i) {
        FunctionSummary& function = functions[i];
        versions.bind(ids[i]).step();
        function.versions = versions.natural(0);
        versions.reset();
        for (live.bind(ids[i]); live.step();)
            function.live.push_back({live.natural(0), static_cast<unsigned>(live.natural(1))});
        live.reset();
        for (routes.bind(ids[i]); routes.step();)
            function.routes.push_back({routes.text(0), routes.text(1)});
        routes.reset();
        function.kept = kept.bind(ids[i]).step();
        kept.reset();
    }
    return functions;
}

FunctionDetails Functions::describe(const std::string& name) {
    auto index = store_.index();
    const Transaction same_moment(*index, Transaction::Kind::read);
    const std::int64_t id = function_id(*index, name);
    const FunctionRecord function = load_function(*index, id);
    FunctionDetails details;
    details.name = function.name;
    details.etag = function.etag();
    details.created = function.created;
    details.changed = function.changed;
    details.live = function.live;
    details.routes = function.routes;
    details.moved = function.moved;
    details.env = function.env;
    for (const auto& [secret, value] : function.secrets)
        details.secrets.push_back(secret);
    details.versions = version_numbers(*index, id).size();
    details.kept = index->prepare(kKept).bind(id).step();
    auto live = index->prepare(std::string(kVersionColumns) + "AND t.percent IS NOT NULL ORDER BY v.number");
    for (live.bind(id); live.step();)
        details.live_versions.push_back(read_version(live, *index));
    return details;
}

std::vector<VersionInfo> Functions::versions(const std::string& name) {
    auto index = store_.index();
    const Transaction same_moment(*index, Transaction::Kind::read);
    std::vector<VersionInfo> versions;
    auto rows = index->prepare(std::string(kVersionColumns) + "ORDER BY v.number DESC");
    for (rows.bind(function_id(*index, name)); rows.step();)
        versions.push_back(read_version(rows, *index));
    return versions;
}

VersionInfo Functions::version(const std::string& name, std::uint64_t number) {
    auto index = store_.index();
    const Transaction same_moment(*index, Transaction::Kind::read);
    auto row = index->prepare(std::string(kVersionColumns) + "AND v.number = ?");
    if (!row.bind(function_id(*index, name)).bind(number).step())
        throw NotFound(fmt::format("{} has no version {}: `kvmserver versions {}` lists them", name, number, name));
    return read_version(row, *index);
}

std::vector<Event> Functions::history(const std::string& name) {
    auto index = store_.index();
    const Transaction same_moment(*index, Transaction::Kind::read);
    return load_events(*index, function_id(*index, name));
}

std::optional<std::string> Functions::owner(const Route& route) {
    auto index = store_.index();
    auto found = index->prepare("SELECT f.name FROM route r JOIN function f ON f.id = r.function "
                                "WHERE r.host = ? AND r.path = ?");
    return found.bind(route.host).bind(route.path).step() ? std::optional(found.text(0)) : std::nullopt;
}

void Functions::bring_owners(const std::string& name, const std::vector<Route>& routes) {
    if (!store_.shared())
        return;
    std::set<std::string> others;
    for (const Route& route : routes)
        if (const auto has_it = owner(route); has_it && *has_it != name)
            others.insert(*has_it);
    for (const std::string& other : others)
        bring_newest(store_, shared_key(other));
}

std::vector<RouteOwner> Functions::routes() {
    auto index = store_.index();
    std::vector<RouteOwner> routes;
    auto rows = index->prepare("SELECT r.host, r.path, f.name FROM route r JOIN function f ON f.id = "
                               "r.function ORDER BY r.host, r.path");
    while (rows.step())
        routes.push_back({{rows.text(0), rows.text(1)}, rows.text(2)});
    return routes;
}

} // namespace kvmserver::store
