// The functions and versions that the store says are live, for routing.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/ceilings/file.hpp"
#include "src/daemon/function_version.hpp"
#include "src/daemon/routing.hpp"
#include "src/daemon/worker_pool.hpp"
#include "src/store/functions/served.hpp"

namespace kvmserver::daemon {

struct Defaults {
    unsigned machines = 1;     // if a manifest has no scale.max
    std::uint64_t idle_ns = 0; // if a manifest has no scale.idle
    std::uint64_t rest_ns = 0; // if it has neither scale.rest nor scale.min
    bool share_across_tenants = false;
};

class FunctionTable {
public:
    using Identity = std::pair<std::string, std::int64_t>; // name and creation time of a function, ms since 1970

    // `note` gets a line about each function that cannot be served. `ceilings` returns those in force, at each refresh.
    // All arguments must outlive this object.
    FunctionTable(store::Store& store, WorkerPool& pool, LogStore& logs, const Defaults& defaults,
                  std::function<std::shared_ptr<const CeilingsFile>()> ceilings,
                  std::function<void(const std::string&)> note);

    // Any thread.
    const RoutingTable& routes() const { return routes_; }
    std::size_t size() const { return size_; } // functions
    // What is served at each address of TCP functions. An address that two functions have is that of the first by name.
    TcpTable addresses() const;
    // Whether some function holds the key of its TLS connections itself, and the one that does for this host, or null.
    bool has_tls_passthrough() const { return passes_tls_; }
    std::shared_ptr<const Destination> passing(std::string_view host) const;

    // The function of this name, or null.
    std::shared_ptr<const Destination> named(const std::string& function) const;

    enum class Read { nothing, some, all };
    // Reads of the store what has changed; all of it at the first call, if `anyhow`, or if too much has changed.
    // Versions that stay live keep their processes, unless their snapshot was compressed anew. A function that cannot
    // be read stays as it was, and the next call retries it. A version with an invalid manifest is not live.
    // Thread-safe. Throws what the store throws; all then stays as it was. Returns which functions were read.
    Read refresh(bool anyhow);
    // A version for `invoke`, whether it is live or not. Throws store::NotFound.
    std::shared_ptr<FunctionVersion> version(const std::string& function, std::uint64_t version);
    // One that is not served: for what it would be. Throws store::NotFound.
    std::shared_ptr<const FunctionVersion> described(const std::string& function, std::uint64_t version);
    struct LiveVersion {
        unsigned percent = 0; // of the requests
        bool suspends = false;
    };
    // By function and version.
    std::map<std::pair<std::string, std::uint64_t>, LiveVersion> shares() const;
    // The live versions of a function; nothing if there is no such function.
    std::optional<std::vector<std::shared_ptr<FunctionVersion>>> live(const std::string& function) const;
    // Of one version; nothing if it is not live.
    std::optional<unsigned> share(const std::string& function, std::uint64_t version) const;
    // Those that the table in use has.
    std::vector<Identity> functions() const;
    // Which functions came (true) and went (false) since the last call of this or of functions(), in this order.
    std::vector<std::pair<Identity, bool>> changes() const;

private:
    using Place = std::shared_ptr<const Destination>;
    using Faults = std::map<std::string, std::string>; // of a function, by what is at fault; each is noted once
    using Secrets = std::map<std::string, store::SharedSecret>;
    static constexpr std::int64_t kNothing = -1;

    // A refresh that is under way. Nothing of it is seen before it is complete.
    struct Refresh {
        bool all = false; // every function is read
        std::int64_t last_change = 0;
        std::shared_ptr<const CeilingsFile> ceilings;
        Secrets secrets;
        std::vector<RoutingTable::Change> changes;
        std::set<std::string> read, failed; // names
        std::map<std::string, Faults> faults;
    };
    void read_all(const store::Served& served, Refresh& refresh);
    void read_one(const store::Served& served, const std::string& name, Refresh& refresh);
    void take(const store::ServedFunction& function, Refresh& refresh);
    void put_in_place(Refresh& refresh);
    void read_addresses(const std::vector<RoutingTable::Change>& changes);
    void note_faults(Refresh& refresh);
    std::shared_ptr<FunctionVersion> version_of(const store::ServedFunction& function,
                                                const store::ServedVersion& version, const Refresh& refresh,
                                                const Destination* former, std::optional<std::uint64_t>& log_bytes);
    static std::vector<Ceilings> ceilings_of(const std::string& function, const store::ServedVersion& version,
                                             const CeilingsFile& file);
    FunctionVersion::Facts facts_of(const store::ServedFunction& function, const store::ServedVersion& version,
                                    const Secrets& secrets, const std::vector<Ceilings>& ceilings);
    std::shared_ptr<FunctionVersion> make_version(FunctionVersion::Facts facts);
    std::shared_ptr<FunctionVersion> read_version(const std::string& function, const store::VersionInfo& info);
    Place place_of(std::string_view function) const;

    store::Store& store_;
    WorkerPool& pool_;
    LogStore& logs_;
    const Defaults defaults_;
    const std::function<std::shared_ptr<const CeilingsFile>()> ceilings_;
    const std::function<void(const std::string&)> note_;
    RoutingTable routes_;
    std::atomic<std::size_t> size_{0};
    std::atomic<bool> passes_tls_{false};
    mutable std::mutex mutex_; // guards the following
    std::int64_t seen_ = kNothing;
    std::int64_t last_change_ = 0; // store::Changes::last
    bool looked_ = false;
    std::unordered_map<std::string_view, Place> functions_; // by name, which is in the destination
    std::set<std::string> again_;                           // functions that could not be read
    SharedGiven last_given_;                                // for versions that have the same
    std::map<std::string, Faults> faults_;                  // by function
    std::map<std::string, Place> tcp_functions_;            // by name
    std::set<std::string> passing_;                         // functions with protocol = "tls-passthrough"
    TcpTable addresses_;
    Faults address_faults_;
    mutable std::vector<std::pair<Identity, bool>> changes_;
};

} // namespace kvmserver::daemon
