// What the store says is live, as requests are routed by it.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include "src/ceilings/file.hpp"
#include "src/daemon/routing.hpp"
#include "src/daemon/worker_pool.hpp"
#include "src/store/functions/functions.hpp"
#include "tinykvm/base/shared_value.hpp"

namespace kvmserver::daemon {

struct Defaults {
    unsigned machines = 1;     // where a manifest says no scale.max
    std::uint64_t idle_ns = 0; // nor scale.idle
    bool share_across_tenants = false;
};

class FunctionTable {
public:
    // `note` gets one line of what cannot be served. All must outlive it.
    // `ceilings`: those in force, for each look at the store.
    FunctionTable(store::Store& store, WorkerPool& pool, LogStore& logs, const Defaults& defaults,
                  std::function<std::shared_ptr<const CeilingsFile>()> ceilings,
                  std::function<void(const std::string&)> note);

    // The table in use; any thread.
    std::shared_ptr<const RoutingTable> get() const { return table_.load(); }
    // Reads the store, if it has changed since (or `anyhow`). Versions that are live before and after keep
    // their processes. A function that cannot be read now stays as it was, and the next call tries it again;
    // a version whose manifest is wrong is not live. Thread-safe. Throws what the store throws; the table in
    // use then stays.
    void refresh(bool anyhow);
    // A version whether it is live or not, for `invoke`; throws store::NotFound.
    std::shared_ptr<FunctionVersion> version(const std::string& function, std::uint64_t version);
    // By function and version: percent of the requests.
    std::map<std::pair<std::string, std::uint64_t>, unsigned> shares() const;

private:
    using Key = std::tuple<std::string, std::int64_t, std::uint64_t>; // name, when it was made, version
    struct Known {
        std::shared_ptr<FunctionVersion> version;
        FunctionSettings settings;
        Digest snapshot;
        std::string tenant;   // store::VersionRecord::tenant
        std::string ceilings; // JSON: those of who deployed it; "": none
    };
    struct Part { // of one function
        std::shared_ptr<Destination> destination;
        std::map<Key, Known> known;
    };
    using Faults = std::map<std::string, std::string>;     // by function or version: what is noted, once
    using Identity = std::pair<std::string, std::int64_t>; // of a function: its name, and when it was made
    static constexpr std::int64_t kNothing = -1;
    Part part_of(const store::FunctionSummary& function, Faults& faults);
    Part former_part(const store::FunctionSummary& function);
    Known read_version(const std::string& function, std::uint64_t version);
    Values values_of(const std::string& function, const Known& version);
    std::vector<Ceilings> ceilings_of(const std::string& function, const Known& known) const;
    std::shared_ptr<FunctionVersion> make_version(const std::string& function, std::uint64_t version,
                                                  const Known& known, Values values,
                                                  const std::vector<Ceilings>& ceilings);

    store::Store& store_;
    WorkerPool& pool_;
    LogStore& logs_;
    const Defaults defaults_;
    const std::function<std::shared_ptr<const CeilingsFile>()> ceilings_;
    const std::function<void(const std::string&)> note_;
    tinykvm::SharedValue<const RoutingTable> table_;
    mutable std::mutex mutex_; // guards what follows
    std::int64_t seen_ = kNothing;
    bool looked_ = false;
    std::map<Key, Known> known_;
    std::map<std::pair<std::string, std::uint64_t>, unsigned> shares_;
    std::map<Identity, std::shared_ptr<const Destination>> functions_;
    Faults faults_;
};

} // namespace kvmserver::daemon
