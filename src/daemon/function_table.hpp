// The functions and versions that the store says are live, for routing.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>

#include "src/ceilings/file.hpp"
#include "src/daemon/routing.hpp"
#include "src/daemon/worker_pool.hpp"
#include "src/store/functions/functions.hpp"
#include "tinykvm/base/shared_value.hpp"

namespace kvmserver::daemon {

struct Defaults {
    unsigned machines = 1;     // if a manifest has no scale.max
    std::uint64_t idle_ns = 0; // if a manifest has no scale.idle
    bool share_across_tenants = false;
};

class FunctionTable {
public:
    // `note` gets a line about each function that cannot be served. `ceilings` returns those in force, at each refresh.
    // All arguments must outlive this object.
    FunctionTable(store::Store& store, WorkerPool& pool, LogStore& logs, const Defaults& defaults,
                  std::function<std::shared_ptr<const CeilingsFile>()> ceilings,
                  std::function<void(const std::string&)> note);

    // The table in use. Any thread.
    std::shared_ptr<const RoutingTable> get() const { return table_.load(); }
    // Reads the store if it has changed, or if `anyhow`. Versions that stay live keep their processes, unless their
    // snapshot was compressed anew. A function that cannot be read stays as it was, and the next call retries it. A
    // version with an invalid manifest is not live. Thread-safe. Throws what the store throws; the table in use then
    // stays. Returns whether it was read.
    bool refresh(bool anyhow);
    // A version for `invoke`, whether it is live or not. Throws store::NotFound.
    std::shared_ptr<FunctionVersion> version(const std::string& function, std::uint64_t version);
    // Percentage of the requests, by function and version.
    std::map<std::pair<std::string, std::uint64_t>, unsigned> shares() const;
    // Those that the table in use has: name, creation time in ms since 1970.
    std::set<std::pair<std::string, std::int64_t>> functions() const;

private:
    using Key = std::tuple<std::string, std::int64_t, std::uint64_t>; // name, creation time, version
    struct Known {
        std::shared_ptr<FunctionVersion> version;
        FunctionSettings settings;
        Digest snapshot;
        std::string tenant;   // store::VersionRecord::tenant
        std::string ceilings; // JSON: the ceilings of whoever deployed it; "": none
    };
    struct Part { // what belongs to one function
        std::shared_ptr<Destination> destination;
        std::map<Key, Known> known;
    };
    using Faults = std::map<std::string, std::string>;     // by function or version; each is noted once
    using Identity = std::pair<std::string, std::int64_t>; // name and creation time of a function
    static constexpr std::int64_t kNothing = -1;
    static bool add_tcp(const Destination& destination, TcpTable& table, Faults& faults);
    Part part_of(const store::FunctionSummary& function, Faults& faults);
    Part former_part(const store::FunctionSummary& function);
    Known read_version(const std::string& function, std::uint64_t version);
    Values values_of(const std::string& function, const Known& version, const store::FunctionDetails& details);
    std::vector<Ceilings> ceilings_of(const std::string& function, const Known& known) const;
    std::shared_ptr<FunctionVersion> make_version(const Identity& function, std::uint64_t version, const Known& known,
                                                  Values values, const std::vector<Ceilings>& ceilings);

    store::Store& store_;
    WorkerPool& pool_;
    LogStore& logs_;
    const Defaults defaults_;
    const std::function<std::shared_ptr<const CeilingsFile>()> ceilings_;
    const std::function<void(const std::string&)> note_;
    tinykvm::SharedValue<const RoutingTable> table_;
    mutable std::mutex mutex_; // guards the following
    std::int64_t seen_ = kNothing;
    bool looked_ = false;
    std::map<Key, Known> known_;
    std::map<std::pair<std::string, std::uint64_t>, unsigned> shares_;
    std::map<Identity, std::shared_ptr<const Destination>> functions_;
    Faults faults_;
};

} // namespace kvmserver::daemon
