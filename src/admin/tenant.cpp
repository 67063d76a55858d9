#include "src/admin/tenant.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/daemon/function_settings.hpp"
#include "src/ops/manifest.hpp"
#include "src/store/errors.hpp"
#include "src/store/functions/secrets.hpp"
#include "src/store/functions/tenant.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::admin {
namespace {

using store::Route;

std::vector<Route> routes_now(store::Functions& functions, const std::string& name) {
    try {
        return functions.describe(name).routes;
    } catch (const store::NotFound&) {
        return {};
    }
}

// Whether the claim would take requests from a function of somebody else. The operator may have given them a part of
// the host of a function of the caller.
bool takes_away(const Route& claim, const std::vector<store::RouteOwner>& all, const std::string& prefix) {
    return std::ranges::any_of(all, [&](const store::RouteOwner& other) {
        return !store::in_prefix(other.function, prefix) && store::is_own_host(other.route.host, prefix) &&
               store::covers(other.route, claim);
    });
}

} // namespace

void require_routes(Call& call, const ops::DeployPlan& plan) {
    if (!call.who.limited())
        return;
    std::vector<Route> claims = plan.routes.value_or(std::vector<Route>());
    if (!plan.routes && plan.manifest)
        claims = ops::manifest_facts(*plan.manifest).routes.value_or(std::vector<Route>());
    if (claims.empty())
        return;
    std::vector<Route> granted;
    for (const std::string& text : call.who.routes())
        granted.push_back(Route::parse(text));
    std::vector<store::RouteOwner> all;
    if (store::Store* store = call.api.source().get()) {
        store::Functions functions(*store);
        all = functions.routes();
        const auto now = routes_now(functions, plan.name);
        granted.insert(granted.end(), now.begin(), now.end());
    }
    const std::string prefix = call.who.prefix();
    for (const Route& claim : claims) {
        if (std::ranges::any_of(granted, [&](const Route& grant) { return store::covers(grant, claim); }))
            continue;
        if (store::is_own_host(claim.host, prefix) && !takes_away(claim, all, prefix))
            continue;
        throw Refused(403, "route-not-granted",
                      fmt::format("route {}: this token may claim NAME.localhost of functions that it is for, and "
                                  "what is granted to it",
                                  tinykvm::brief(claim.text())),
                      fmt::format("choose another route, or ask for a token that has it: kvmserver token create "
                                  "NAME --prefix {} --route '{}'",
                                  prefix, tinykvm::brief(claim.text())));
    }
}

void require_secrets(Call& call, const ops::DeployPlan& plan) {
    if (!call.who.limited() || !plan.activate || !plan.manifest)
        return;
    const auto wanted = daemon::function_settings(*plan.manifest).secrets;
    if (wanted.empty())
        return;
    std::set<std::string> reach;
    if (store::Store* store = call.api.source().get())
        reach = store::Secrets(*store).within_reach(plan.name);
    for (const std::string& name : wanted)
        if (!reach.contains(name))
            throw Refused(403, "secret-not-granted",
                          fmt::format("secret {}: {} has none of its own by that name, and none for all functions "
                                      "is granted to it",
                                      tinykvm::brief(name), plan.name),
                          fmt::format("set one (a new function is deployed with --no-activate first), or ask for "
                                      "the grant: kvmserver secret set {} --for {}",
                                      tinykvm::brief(name), plan.name));
}

} // namespace kvmserver::admin
