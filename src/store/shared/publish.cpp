#include "src/store/shared/publish.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/store/errors.hpp"
#include "src/store/functions/settings_record.hpp"
#include "src/store/shared/copied.hpp"
#include "src/store/shared/documents.hpp"
#include "src/store/shared/generation.hpp"
#include "src/store/shared/shared_index.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::store {

namespace {

// Routes that are given up, taken or kept, for one transaction with the function's entry.
struct Claims {
    std::vector<SharedCondition> conditions;
    std::vector<SharedChange> changes;
};

Claims claim_routes(const std::string& name, const std::vector<Route>& before, const std::vector<Route>& now) {
    Claims claims;
    const auto is_in = [](const std::vector<Route>& routes, const Route& route) {
        return std::ranges::find(routes, route) != routes.end();
    };
    for (const Route& route : now)
        if (!is_in(before, route)) {
            claims.conditions.push_back({.key = shared_key(route)});
            claims.changes.push_back({shared_key(route), name});
        }
    for (const Route& route : before)
        if (!is_in(now, route)) {
            claims.conditions.push_back({.key = shared_key(route), .value = name});
            claims.changes.push_back({shared_key(route), std::nullopt});
        }
    return claims;
}

void make(Store& store, Database& database, const std::string& key, std::optional<std::string> value, Claims claims,
          const std::string& what, std::span<const SharedCondition> of_bucket = {}) {
    claims.conditions.insert(claims.conditions.end(), of_bucket.begin(), of_bucket.end());
    claims.conditions.push_back({.key = key, .revision = copied(database, key).expected()});
    const bool removed = !value;
    claims.changes.push_back({key, std::move(value)});
    const auto revision = store.shared()->change(claims.conditions, claims.changes);
    if (!revision)
        require_same_generation(*store.shared(), of_bucket);
    if (!revision)
        throw Conflict(fmt::format("{} was changed through another daemon of the cluster at the same moment: read it "
                                   "again and repeat the change",
                                   what));
    note_copied(database, key, {*revision, removed});
}

} // namespace

std::vector<Route> routes_of(const Database& database, std::int64_t function) {
    std::vector<Route> routes;
    auto rows = database.prepare("SELECT host, path FROM route WHERE function = ?");
    for (rows.bind(function); rows.step();)
        routes.push_back({rows.text(0), rows.text(1)});
    return routes;
}

void publish_function(Store& store, Database& database, std::int64_t id, const std::vector<Route>& routes_before,
                      std::span<const Digest> new_snapshots) {
    if (!store.shared())
        return;
    const SharedFunction function = load_shared_function(database, id);
    const std::string& name = function.record.name;
    make(store, database, shared_key(name), to_text(function),
         claim_routes(name, routes_before, function.record.routes),
         fmt::format("function {}, or one of its routes,", name), conditions_of_bucket(database, new_snapshots));
}

void publish_removal(Store& store, Database& database, const std::string& name,
                     const std::vector<Route>& routes_before) {
    if (store.shared())
        make(store, database, shared_key(name), std::nullopt, claim_routes(name, routes_before, {}),
             "function " + name);
}

void publish_settings(Store& store, Database& database) {
    if (store.shared())
        make(store, database, kSharedSettings, to_record(load_settings(database)), {},
             "what belongs to no function (tokens, secrets of all, certificates)");
}

} // namespace kvmserver::store
