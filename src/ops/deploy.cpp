#include "src/ops/deploy.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/ops/json.hpp"
#include "src/ops/manifest.hpp"
#include "src/store/errors.hpp"

namespace kvmserver::ops {
namespace {

using store::Route;

std::string text_of(const std::vector<store::Live>& live) {
    std::string line;
    for (const store::Live& part : live)
        line += fmt::format("{}v{}", line.empty() ? "" : ", ", part.version);
    return live.empty() ? "nothing" : line;
}

void check_version(const DeployPlan& plan, const DeployChange& change) {
    if (plan.if_match && *plan.if_match != change.etag())
        throw store::StaleEtag(plan.name, change.etag());
    if (!plan.if_version)
        return;
    if (!change.now) {
        if (*plan.if_version != 0)
            throw store::Conflict(
                fmt::format("there is no function {} yet, so v{} is not live", plan.name, *plan.if_version));
        return;
    }
    const auto& live = change.now->live;
    const auto most = std::ranges::max_element(live, {}, &store::Live::percent);
    if (most == live.end() ? *plan.if_version != 0 : most->version != *plan.if_version)
        throw store::Conflict(fmt::format("{} {} is live, not v{}", plan.name, text_of(live), *plan.if_version));
    if (*plan.if_version == 0)
        throw store::Conflict(fmt::format("there is a function {} already", plan.name));
}

void check_routes(const DeployPlan& plan, const DeployChange& change, store::Functions& functions) {
    if (!change.routes)
        return;
    functions.bring_owners(plan.name, *change.routes);
    for (const Route& route : *change.routes)
        if (const auto owner = functions.owner(route); owner && *owner != plan.name)
            throw store::RouteTaken(route.text(), *owner);
}

// Returns [function.env] of a stored manifest.
nlohmann::json manifest_env(const std::string& stored) {
    nlohmann::json at = nlohmann::json::parse(stored);
    for (const char* const key : {"function", "env"}) {
        if (!at.is_object() || !at.contains(key))
            return nlohmann::json::object();
        nlohmann::json inner = std::move(at[key]);
        at = std::move(inner);
    }
    return at.is_object() ? at : nlohmann::json::object();
}

// The manifest's variables replace those that are set. Variables that came from the previous manifest and are not in
// this one are removed.
Env merged_env(const store::FunctionDetails& now, const Env& wanted) {
    Env env = now.env;
    for (const store::VersionInfo& version : now.live_versions) {
        const nlohmann::json before = manifest_env(version.manifest);
        for (const auto& [name, value] : before.items())
            if (const auto at = env.find(name); at != env.end() && value == at->second)
                env.erase(at);
    }
    for (const auto& [name, value] : wanted)
        env[name] = value;
    return env;
}

// The variables that `env set` or `env unset` changed and that the manifest's values replace.
std::vector<std::string> replaced_env(const store::FunctionDetails& now, const Env& wanted) {
    std::vector<nlohmann::json> manifests;
    for (const store::VersionInfo& version : now.live_versions)
        manifests.push_back(manifest_env(version.manifest));
    std::vector<std::string> names;
    for (const auto& variable : wanted) {
        const auto at = now.env.find(variable.first);
        const nlohmann::json current = at == now.env.end() ? nlohmann::json() : nlohmann::json(at->second);
        const bool from_manifest = std::ranges::any_of(manifests, [&](const nlohmann::json& before) {
            return before.value(variable.first, nlohmann::json()) == current; // neither has it: it is new there
        });
        if (current != variable.second && !from_manifest && !manifests.empty())
            names.push_back(variable.first);
    }
    return names;
}

// A TCP function has no routes. If it becomes an HTTP function, it gets one as a new function would.
bool was_tcp(const store::FunctionDetails& now) {
    return std::ranges::any_of(now.live_versions,
                               [](const store::VersionInfo& version) { return manifest_facts(version.manifest).tcp; });
}

} // namespace

std::vector<Route> DeployChange::routes_after() const {
    return routes ? *routes : now ? now->routes : std::vector<Route>{};
}

Env DeployChange::env_after() const { return env ? *env : now ? now->env : Env{}; }

DeployChange change_of(const DeployPlan& plan, store::Functions* functions) {
    store::check_function_name(plan.name);
    ManifestFacts facts;
    if (plan.manifest)
        facts = manifest_facts(*plan.manifest);
    DeployChange change;
    try {
        if (functions)
            change.now = functions->describe(plan.name);
    } catch (const store::NotFound&) {
    }
    check_version(plan, change);
    const bool is_elsewhere = change.now && change.now->moved;
    if (is_elsewhere && plan.activate)
        throw store::Conflict(fmt::format("{} was migrated to {}: deploy it there, or `kvmserver delete` it here",
                                          plan.name, change.now->moved->to));
    if (plan.arrives && change.now && !is_elsewhere && !change.now->live.empty())
        throw store::Conflict(
            fmt::format("there is a function {} already, and {} is live", plan.name, text_of(change.now->live)));
    // If the new version does not go live, the live one keeps its routes and environment.
    const bool applies = plan.activate || plan.arrives || !change.now;
    for (const ListenAddress& address : facts.listen)
        change.listen.push_back(address.text());
    if (facts.tcp && plan.routes && !plan.routes->empty())
        throw store::BadValue("routes are for HTTP functions; a function with protocol = \"tcp\" has function.listen");
    if (facts.tcp && applies)
        change.routes.emplace();
    else if (applies && plan.routes)
        change.routes = plan.routes;
    else if (applies && facts.routes)
        change.routes = facts.routes;
    else if (!facts.tcp && (!change.now || (applies && was_tcp(*change.now))))
        change.routes = {Route::parse(plan.name + ".localhost")};
    if (facts.tls_passthrough)
        for (const Route& route : change.routes_after())
            if (route.host.empty() || route.path != "/")
                throw store::BadValue(
                    fmt::format("route {} of a function with protocol = \"tls-passthrough\": it must be "
                                "a host alone, since what a client asks for there is encrypted",
                                route.text()));
    if (applies && plan.manifest) {
        change.env = change.now ? merged_env(*change.now, facts.env) : facts.env;
        if (change.now)
            change.env_replaced = replaced_env(*change.now, facts.env);
    }
    if (plan.env)
        change.env = plan.env;
    if (functions)
        check_routes(plan, change, *functions);
    return change;
}

nlohmann::json change_json(const DeployPlan& plan, const DeployChange& change) {
    return {{"name", plan.name},
            {"dry_run", true},
            {"new", !change.now},
            {"before", live_json(change.now ? change.now->live : std::vector<store::Live>{})},
            {"activate", plan.activate},
            {"routes", routes_json(change.routes_after())},
            {"routes_before", routes_json(change.now ? change.now->routes : std::vector<Route>{})},
            {"listen", change.listen},
            {"env", change.env_after()},
            {"env_before", change.now ? change.now->env : Env{}},
            {"env_replaced", change.env_replaced}};
}

Deployed deploy(const DeployPlan& plan, const Digest& snapshot, const std::string& ceilings,
                store::Functions& functions) {
    for (;;) {
        const DeployChange change = change_of(plan, &functions); // again: time has passed since the checks
        store::DeployRequest request;
        request.function = plan.name;
        request.snapshot = snapshot;
        if (plan.manifest)
            request.manifest = *plan.manifest;
        request.activate = plan.activate;
        request.ceilings = ceilings;
        request.routes = change.routes;
        request.env = change.env;
        request.if_match = change.etag();
        request.tenant = plan.tenant;
        request.compress_later = plan.compress_later;
        request.warms_up = plan.warms_up;
        request.message = plan.message;
        if (plan.arrives) {
            request.state = store::VersionState::pending;
            request.at_least = plan.number;
            request.secrets = plan.secrets;
        }
        try {
            return {functions.deploy(request), change.routes_after(), change.listen};
        } catch (const store::StaleEtag&) { // changed by somebody else: try again
        }
    }
}

void check_traffic_of(const std::string& name, const std::vector<store::VersionInfo>& all,
                      const std::vector<store::Live>& live) {
    store::check_traffic(live);
    for (const store::Live& part : live) {
        const auto at = std::ranges::find(all, part.version, &store::VersionInfo::number);
        if (at == all.end())
            throw store::NotFound(
                fmt::format("{} has no v{}: `kvmserver versions {}` lists them", name, part.version, name));
        if (at->state != store::VersionState::ready)
            throw store::Conflict(fmt::format("{} v{} is {}, not ready: it cannot go live", name, part.version,
                                              store::name_of(at->state)));
    }
}

std::vector<store::Live> live_of(const std::vector<store::VersionInfo>& all) {
    std::vector<store::Live> live;
    for (const store::VersionInfo& version : all)
        if (version.percent > 0)
            live.push_back({version.number, version.percent});
    std::ranges::sort(live, {}, &store::Live::version);
    return live;
}

std::uint64_t rollback_target(const std::string& name, const std::vector<store::VersionInfo>& all) {
    const auto live = live_of(all);
    const auto most = std::ranges::max_element(
        live, [](const store::Live& a, const store::Live& b) { return a.percent <= b.percent; });
    const auto older = std::ranges::find_if(all, [&](const store::VersionInfo& version) {
        return most != live.end() && version.number < most->version && version.state == store::VersionState::ready;
    });
    if (older != all.end())
        return older->number;
    const auto other = std::ranges::find_if(all, [](const store::VersionInfo& version) {
        return version.percent == 0 && version.state == store::VersionState::ready;
    });
    if (other == all.end())
        throw store::NotFound(
            fmt::format("{} has no other version that is ready: there is none to roll back to", name));
    throw store::NotFound(
        most == live.end()
            ? fmt::format("{} has no live version to roll back from; `kvmserver rollback {} {}` makes v{} live", name,
                          name, other->number, other->number)
            : fmt::format("{} has no ready version before v{}, which is live; `kvmserver rollback {} {}` goes to v{}",
                          name, most->version, name, other->number, other->number));
}

} // namespace kvmserver::ops
