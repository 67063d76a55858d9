// Deploys a new version of a function, and computes beforehand what that changes.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/store/functions/functions.hpp"

namespace kvmserver::ops {

using Env = std::map<std::string, std::string>;

struct DeployPlan {
    std::string name;
    std::optional<std::string> manifest;             // JSON; nothing: no manifest
    std::optional<std::vector<store::Route>> routes; // replace the manifest's
    bool activate = true;
    std::optional<std::uint64_t> if_version; // must be the live version; 0: the function must not exist
    store::IfMatch if_match;
    std::string tenant;          // of whoever deploys (store::VersionRecord::tenant)
    bool compress_later = false; // store::VersionInfo::compress_later
    bool warms_up = false;       // store::DeployRequest::warms_up
    std::string message;         // store::Event::message
    // From another daemon, which then asks for it to be taken over: it cannot go live otherwise. Routes, environment
    // and secrets are those of there, unless the function is live here: then it is refused.
    bool arrives = false;
    std::uint64_t number = 0; // that it has there
    std::optional<Env> env, secrets;
};

// Routes and environment after the deploy, and the state that they were computed from.
struct DeployChange {
    std::optional<store::FunctionDetails> now;       // nothing: a new function
    std::optional<std::vector<store::Route>> routes; // nothing: unchanged
    std::optional<Env> env;
    std::vector<std::string> env_replaced; // variables that were changed by hand and get the manifest's values again
    std::vector<std::string> listen;       // addresses of the new version, if it is a TCP function
    std::string etag() const { return now ? now->etag : ""; }
    std::vector<store::Route> routes_after() const;
    Env env_after() const;
};

// Throws what deploy() would throw. `functions` is null if there is no store yet.
DeployChange change_of(const DeployPlan& plan, store::Functions* functions);
nlohmann::json change_json(const DeployPlan& plan, const DeployChange& change);

struct Deployed {
    store::DeployResult result;
    std::vector<store::Route> routes;
    std::vector<std::string> listen; // DeployChange::listen
};

// The caller holds a SnapshotHold of the snapshot and has checked that it is healthy. `ceilings`: JSON of those that
// the version stays under; "": none.
Deployed deploy(const DeployPlan& plan, const Digest& snapshot, const std::string& ceilings,
                store::Functions& functions);

// Checks as Functions::set_traffic would, without changing anything. Throws NotFound and Conflict.
void check_traffic_of(const std::string& name, const std::vector<store::VersionInfo>& all,
                      const std::vector<store::Live>& live);
// The live versions in a list of versions.
std::vector<store::Live> live_of(const std::vector<store::VersionInfo>& all);
// The version that a rollback would make live. `all` is newest first.
std::uint64_t rollback_target(const std::string& name, const std::vector<store::VersionInfo>& all);

} // namespace kvmserver::ops
