// The read-only part of Functions.
#include <fmt/format.h>

#include "src/store/errors.hpp"
#include "src/store/functions/functions.hpp"

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

} // namespace

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

constexpr std::string_view kKept =
    "SELECT DISTINCT t.function FROM traffic t JOIN version v ON v.function = t.function "
    "AND v.number = t.number WHERE json_valid(v.manifest) "
    "AND json_extract(v.manifest, '$.function.ephemeral') = 0";

} // namespace

std::vector<FunctionSummary> Functions::list() {
    auto index = store_.index();
    const Transaction same_moment(*index, Transaction::Kind::read);
    std::vector<FunctionSummary> functions;
    std::map<std::int64_t, std::size_t> place; // index in `functions` by id
    auto heads = index->prepare("SELECT id, name, revision, created, changed, tag FROM function ORDER BY name");
    while (heads.step()) {
        place[heads.integer(0)] = functions.size();
        FunctionSummary& function = functions.emplace_back();
        function.name = heads.text(1);
        function.etag = fmt::format("{}-{}", heads.text(5), heads.integer(2));
        function.created = heads.integer(3);
        function.changed = heads.integer(4);
    }
    const auto each = [&](std::string_view sql, const auto& add) {
        auto rows = index->prepare(sql);
        while (rows.step())
            if (const auto found = place.find(rows.integer(0)); found != place.end())
                add(functions[found->second], rows);
    };
    each("SELECT function, count(*) FROM version GROUP BY function",
         [](FunctionSummary& function, const Statement& row) { function.versions = row.natural(1); });
    each("SELECT function, number, percent FROM traffic ORDER BY function, number",
         [](FunctionSummary& function, const Statement& row) {
             function.live.push_back({row.natural(1), static_cast<unsigned>(row.natural(2))});
         });
    each("SELECT function, host, path FROM route ORDER BY function, host, path",
         [](FunctionSummary& function, const Statement& row) {
             function.routes.push_back({row.text(1), row.text(2)});
         });
    each(kKept, [](FunctionSummary& function, const Statement&) { function.kept = true; });
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
    details.env = function.env;
    for (const auto& [secret, value] : function.secrets)
        details.secrets.push_back(secret);
    details.versions = version_numbers(*index, id).size();
    details.kept = index->prepare(std::string(kKept) + " AND t.function = ?").bind(id).step();
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
