// `kvmserver serve`: takes requests at one address and sends each to the function whose route it matches.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "src/cluster/nodes.hpp"
#include "src/daemon/chunk_store.hpp"
#include "src/daemon/control.hpp"
#include "src/daemon/jail_plans.hpp"
#include "src/tracing/exporter.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::daemon {

// What runs beside the functions: the API.
class Companion {
public:
    virtual ~Companion() = default;
    // Reads its files again. Any thread. Throws UserError; the old ones then stay in use.
    virtual void reload() = 0;
    // Accepts no new requests.
    virtual void drain() = 0;
    // Waits up to `patience` for its requests, then cuts them off. Returns false if they still do not end; it must not
    // be destroyed then.
    virtual bool finish(std::chrono::milliseconds patience) = 0;
};

struct TraceOptions {
    tracing::Send send;
    double share = 1;    // of the requests whose client has not decided
    std::string version; // of kvmserver
};

struct ServeOptions {
    std::filesystem::path store;
    // Opens the public socket. Not called if one was handed in (hand_over.hpp).
    std::function<tinykvm::UniqueFd()> listen;
    bool tls = false;               // else plain HTTP
    std::string certificate, key;   // with tls: PEM files, for hosts that no certificate of the store is for; "": none
    unsigned machines = 1;          // most request machines of a function, unless its manifest sets scale.max
    double rest_seconds = 10;       // before an idle machine gives its memory back, unless its manifest says; 0: never
    double idle_seconds = 60;       // before a function's process is stopped, unless its manifest sets scale.idle
    std::uint64_t max_machines = 0; // of all functions together; 0: no limit
    std::optional<std::uint64_t> memory_reserve; // idle machines end while less is available: MemoryWatch
    std::uint64_t log_rate = 1 << 20;            // bytes that a function may print per second; 0: no limit
    std::string access_log;                      // "": none, "-": stdout, else a file
    unsigned threads = 1;                        // of the HTTP front
    JailSettings jail;
    std::shared_ptr<Examinations> examinations;     // never null
    std::uint64_t max_connections = 0;              // 0: as many as the limit of open files allows
    std::uint64_t max_per_client = 0;               // of these; 0: half of them, and no limit for clients of this host
    std::uint64_t min_rate = 32;                    // bytes per second; slower clients are cut off; 0: no limit
    std::filesystem::path ceilings;                 // the ceilings file; "": none
    std::optional<TraceOptions> traces;             // nothing: requests are not traced
    bool share_across_tenants = false;              // whether different tenants' equal pages share memory
    std::shared_ptr<ChunkStore> chunks;             // null: chunks are on the disk only
    std::shared_ptr<cluster::ClusterIndex> cluster; // null: the store is alone
    cluster::NodeInfo node;                         // with cluster: this daemon; its start is not set
    double cluster_away_seconds = 0;                // that it serves without the cluster's index; 0: for ever
    std::uint64_t chunk_cache_bytes = 0;            // with chunks: that the disk keeps; 0: no limit
    // Called when all is ready, before that is announced. The result lives until the daemon no longer takes requests.
    std::function<std::unique_ptr<Companion>(Control&)> beside;
};

// Serves until SIGTERM or SIGINT, then finishes the requests in flight. SIGHUP: reload. SIGUSR2: hand over to a new
// process of this binary (hand_over.hpp). Returns the exit code; throws UserError, HostError.
int serve(ServeOptions options);

} // namespace kvmserver::daemon
