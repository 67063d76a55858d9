// Operations on the functions of a store, for the command line and the daemon.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/store/functions/function_change.hpp"
#include "src/store/functions/function_record.hpp"
#include "src/store/store.hpp"

namespace kvmserver::store {

struct DeployRequest {
    std::string function;
    Digest snapshot;
    std::string manifest = "{}"; // JSON
    std::string ceilings = "";   // JSON: ceilings of the deployer; "": none
    VersionState state = VersionState::ready;
    bool activate = true;                                  // route all requests to the new version, which must be ready
    std::optional<std::vector<Route>> routes;              // replaces the routes
    std::optional<std::map<std::string, std::string>> env; // replaces the environment
    IfMatch if_match;
    std::string tenant = {};                                        // VersionRecord::tenant
    bool compress_later = false;                                    // VersionInfo::compress_later
    bool warms_up = false;                                          // warmed() will follow
    std::string message = {};                                       // Event::message
    std::uint64_t at_least = 0;                                     // the version's number, if it is not taken
    std::optional<std::map<std::string, std::string>> secrets = {}; // replaces the function's own
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
    std::string ceilings; // JSON: ceilings of the deployer; "": none
    // The snapshot was compressed in a hurry: the daemon compresses it anew and then puts the result in its place.
    bool compress_later = false;
    // Until then a warmed-up snapshot may take this one's place (warmed()); milliseconds since 1970, 0: it stays.
    std::int64_t warms_until = 0;
};

// A version whose snapshot is to be compressed anew.
struct ToCompress {
    std::string function;
    std::uint64_t version = 0;
    Digest snapshot;
    std::string tenant;
    std::int64_t warms_until = 0; // VersionInfo::warms_until: not before then
};

struct FunctionSummary {
    std::string name, etag;
    std::int64_t created = 0, changed = 0;
    std::vector<Live> live;
    std::uint64_t versions = 0;
    std::vector<Route> routes;
    bool kept = false; // a live version keeps its state: [function] ephemeral = false
    std::optional<Moved> moved;
};

struct FunctionDetails : FunctionSummary {
    std::map<std::string, std::string> env;
    std::vector<std::string> secrets; // names only
    std::vector<VersionInfo> live_versions;
};

// Of the functions, by name.
struct Page {
    std::string after = {};  // only names after this one
    std::string prefix = {}; // only those that in_prefix() (tenant.hpp) says belong to it
    std::size_t limit = 0;   // at most so many; 0: no limit
};

struct RouteOwner {
    Route route;
    std::string function;
};

// Each call is one transaction: durable when it returns, without effect when it throws. Errors: NotFound, BadValue,
// Conflict (RouteTaken, StaleEtag), IndexDamaged, HostError.
class Functions {
public:
    // The history says that `author` made the changes. Who only reads needs none.
    explicit Functions(Store& store, Author author = {}) : store_(store), author_(std::move(author)) {}

    // Creates the function if necessary. The caller must have a SnapshotHold of the snapshot.
    DeployResult deploy(const DeployRequest& request);
    // A live version must stay ready (Conflict).
    void set_state(const std::string& name, std::uint64_t version, VersionState state, const IfMatch& if_match = {});
    struct Switched {
        std::vector<Live> before, live;
        std::string etag;
    };
    Switched set_traffic(const std::string& name, const std::vector<Live>& live, const IfMatch& if_match = {},
                         const std::string& message = {});
    // Routes all requests to `version`, by default the newest ready one before the version that now has most requests.
    Switched rollback(const std::string& name, std::optional<std::uint64_t> version = {}, const IfMatch& if_match = {},
                      const std::string& message = {});
    std::string set_routes(const std::string& name, const std::vector<Route>& routes,
                           const IfMatch& if_match = {}); // etag
    // Sets a variable, or unsets it without a value (NotFound if it is not set). Returns the etag.
    std::string set_env(const std::string& name, const std::string& variable, const std::optional<std::string>& value,
                        const IfMatch& if_match = {});
    void remove(const std::string& name, const IfMatch& if_match = {});
    void remove_version(const std::string& name, std::uint64_t version,
                        const IfMatch& if_match = {}); // Conflict if live

    // Puts `anew`, of which the caller must have a SnapshotHold, in the place of `hurried`: the same machine,
    // compressed harder; the etag stays. With `anew` equal to `hurried`, it stays as it is for good. Returns false if
    // there is no such version any more, or if it has another snapshot.
    bool compressed(const std::string& name, std::uint64_t version, const Digest& hurried, const Digest& anew);
    // Puts `warmed`, of which the caller must have a SnapshotHold, in the place of the snapshot of a version that was
    // deployed with `warms_up`: the same program, warmed up; the etag stays. `warmed` may be the snapshot that it has,
    // which then stays. Returns the snapshot of before. Throws Conflict if the version's snapshot is final.
    Digest warmed(const std::string& name, std::uint64_t version, const Digest& warmed, bool compress_later);
    std::vector<ToCompress> to_compress(); // of all functions, live ones first

    // From here on another daemon serves it, if `version` has all requests (else Conflict).
    void move(const std::string& name, std::uint64_t version, const Moved& moved, const IfMatch& if_match = {});
    // It is known to have taken over. Nothing happens if the function is not there or has not moved.
    void move_is_over(const std::string& name);
    // It has refused: the function is served here again.
    void stay(const std::string& name);
    std::map<std::string, Moved> pending_moves(); // by name
    // The other side: a version that is pending becomes ready and gets all requests, also if the function had moved
    // from here. Nothing happens if it was taken over before: whoever asks may ask again. Throws Conflict if it has
    // failed.
    void take_over(const std::string& name, std::uint64_t version);

    std::vector<FunctionSummary> list(const Page& page = {}); // sorted by name
    FunctionDetails describe(const std::string& name);
    std::vector<VersionInfo> versions(const std::string& name); // newest first
    VersionInfo version(const std::string& name, std::uint64_t number);
    std::vector<Event> history(const std::string& name);  // newest first, at most kMaxEvents
    std::vector<RouteOwner> routes();                     // of all functions
    std::optional<std::string> owner(const Route& route); // the function that has this very route
    // In a cluster: another function may have given up one of these routes a moment ago, through another daemon. Throws
    // as catch_up() does.
    void bring_owners(const std::string& name, const std::vector<Route>& routes);

private:
    DeployResult deploy_now(const DeployRequest& request);
    bool compressed_now(const std::string& name, std::uint64_t version, const Digest& hurried, const Digest& anew);
    Digest warmed_now(const std::string& name, std::uint64_t version, const Digest& warmed, bool compress_later);
    Event event(Action action, std::string subject, const std::string& message = {}) const;
    Switched switch_to(FunctionChange& change, const std::vector<Live>& live, Action action,
                       const std::string& message);
    Store& store_;
    Author author_;
};

} // namespace kvmserver::store
