// The functions of a store: what the command line and the daemon do with them.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/store/functions/function_change.hpp"
#include "src/store/functions/function_record.hpp"
#include "src/store/store.hpp"

namespace kvmserver::store {

struct DeployRequest {
    std::string function;
    Digest snapshot;
    std::string manifest = "{}"; // JSON
    std::string ceilings = "";   // JSON: those of who deploys it; "": none
    VersionState state = VersionState::ready;
    bool activate = true;                                  // gets all requests from now on; only a ready version may
    std::optional<std::vector<Route>> routes;              // instead of those it has
    std::optional<std::map<std::string, std::string>> env; // instead of what it has
    IfMatch if_match;
    std::string tenant = {}; // VersionRecord::tenant
};

struct DeployResult {
    std::uint64_t version = 0;
    std::vector<Live> before, live;
    std::string etag;
};

struct VersionInfo {
    std::uint64_t number = 0;
    Digest snapshot;
    std::uint64_t snapshot_bytes = 0;
    std::string manifest;
    std::int64_t created = 0;
    VersionState state = VersionState::ready;
    unsigned percent = 0; // of the requests
    std::string tenant;   // VersionRecord::tenant
    std::string ceilings; // JSON: those of who deployed it; "": none
};

struct FunctionSummary {
    std::string name, etag;
    std::int64_t created = 0, changed = 0;
    std::vector<Live> live;
    std::uint64_t versions = 0;
    std::vector<Route> routes;
};

struct FunctionDetails : FunctionSummary {
    std::map<std::string, std::string> env;
    std::vector<std::string> secrets; // names only
    std::vector<VersionInfo> live_versions;
};

struct RouteOwner {
    Route route;
    std::string function;
};

// Each call is one transaction: it is done, durably, when it returns, and nothing happened when it throws.
// Errors: NotFound, BadValue, Conflict (RouteTaken, StaleEtag), IndexDamaged, HostError.
class Functions {
public:
    explicit Functions(Store& store) : store_(store) {}

    // Makes the function when there is none. The caller has a SnapshotHold of the snapshot.
    DeployResult deploy(const DeployRequest& request);
    void set_state(const std::string& name, std::uint64_t version, VersionState state, const IfMatch& if_match = {});
    struct Switched {
        std::vector<Live> before, live;
        std::string etag;
    };
    Switched set_traffic(const std::string& name, const std::vector<Live>& live, const IfMatch& if_match = {});
    // To `version`, or to the newest ready one before the one that has most requests now.
    Switched rollback(const std::string& name, std::optional<std::uint64_t> version = {}, const IfMatch& if_match = {});
    std::string set_routes(const std::string& name, const std::vector<Route>& routes,
                           const IfMatch& if_match = {}); // etag
    // A value, or nothing to unset it (NotFound when there is none).
    std::string set_env(const std::string& name, const std::string& variable, const std::optional<std::string>& value,
                        const IfMatch& if_match = {});
    void remove(const std::string& name, const IfMatch& if_match = {});
    void remove_version(const std::string& name, std::uint64_t version,
                        const IfMatch& if_match = {}); // Conflict if live

    std::vector<FunctionSummary> list(); // by name
    FunctionDetails describe(const std::string& name);
    std::vector<VersionInfo> versions(const std::string& name); // newest first
    VersionInfo version(const std::string& name, std::uint64_t number);
    std::vector<RouteOwner> routes(); // of all functions

private:
    Store& store_;
};

} // namespace kvmserver::store
