// The daemon's interface for the admin listener. All calls are thread-safe.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/ceilings/file.hpp"
#include "src/common/digest.hpp"
#include "src/daemon/function_process.hpp"
#include "src/daemon/log_store.hpp"
#include "src/daemon/metrics.hpp"
#include "src/store/functions/moved.hpp"
#include "src/store/snapshots/saved_state.hpp"

namespace kvmserver::store {
class Store;
}
namespace kvmserver::cluster {
class Nodes;
}

namespace kvmserver::daemon {

// A version that gets requests or still finishes some.
struct VersionLive {
    std::string function;
    std::uint64_t version = 0;
    unsigned percent = 0; // 0: it only finishes its requests
    unsigned machine = 1; // of several that keep states of their own; once they are one entry: of the first
    // "idle" (no process), "suspended" (no machine, and a saved state to go on from), "starting", "ready", "stopping",
    // "failing" (it dies again and again)
    std::string state;
    bool suspends = false;            // its machines can be suspended
    unsigned suspended = 0;           // so many do not run, and have a saved state
    int pid = 0;                      // of its process, or the first of several; 0: none
    unsigned machines = 0;            // request machines in its processes
    unsigned busy = 0;                // machines with a request
    std::uint64_t in_flight = 0;      // requests in machines
    std::uint64_t queued = 0;         // requests that wait for a machine
    std::uint64_t starts = 0;         // of its process, since the daemon started
    std::string last_failure;         // why its process ended or could not start; "": never
    std::uint64_t memory_bytes = 0;   // proportional set size (PSS) of its process; 0: none
    std::uint64_t resident_bytes = 0; // RSS: unlike the PSS it says nothing about processes that share pages
};

struct DaemonInfo {
    std::string address;    // of the public listener, as given
    std::uint16_t port = 0; // 0: not a TCP socket
    bool tls = false;
    std::int64_t started_ms = 0;                                                // since 1970
    std::uint64_t functions = 0, processes = 0, machines = 0, max_machines = 0; // max_machines 0: no limit
    bool draining = false;                                                      // it is about to end
    bool drained = false;       // a node of a cluster that shall get no requests from load balancers
    bool away_too_long = false; // it has not reached its cluster's index for long, and serves no functions
};

// A request that the daemon makes itself, for the API.
struct InvokeRequest {
    std::string function;
    std::optional<std::uint64_t> version; // any existing version; nothing: chosen by the traffic's percentages
    std::string method = "GET", path = "/";
    std::vector<std::pair<std::string, std::string>> headers; // Host, Content-Length and Connection are added
    std::string body;
    double timeout_seconds = 60;
    std::uint64_t max_bytes = 32ull << 20; // of the reply's body; more is an error
};

struct InvokeReply {
    unsigned status = 0;
    std::string reason;                                       // "Not Found"; may be ""
    std::vector<std::pair<std::string, std::string>> headers; // as the program sent them, except for framing
    std::string body;
    std::uint64_t version = 0;
    std::string request_id;
    bool cold = false;
    std::uint64_t queue_us = 0, restore_us = 0, exec_us = 0, total_us = 0;
    // Set if the program gave no reply: what a client of the public listener would have been told.
    std::string problem_code, problem_detail, problem_hint;
};

// A state that is being saved while its machine goes on.
struct Checkpoint {
    unsigned machine = 1;
    tinykvm::UniqueFd file;
    tinykvm::UniqueFd done; // its process sends a message once the file holds the state, or closes it if it never will
    // Waits for that. How long the state is: later ones may follow it in the file. Nothing if the file never holds it,
    // or not within a minute.
    std::optional<std::uint64_t> wait() const;
};

class Measurements;     // measurements.hpp
class PassedTrials;     // passed_trials.hpp
struct PreparedMachine; // prepared_machine.hpp

class Control {
public:
    virtual ~Control() = default;

    virtual DaemonInfo info() const = 0;
    // Sorted by function and version. `running`: without versions that have no process, no request and no machine that
    // is suspended, which are many.
    virtual std::vector<VersionLive> live(bool running) const = 0;
    virtual MetricsSnapshot metrics() const = 0;
    virtual LogStore& logs() = 0;
    virtual Measurements& measurements() = 0;
    virtual std::shared_ptr<const CeilingsFile> ceilings() const = 0; // as last read
    virtual store::Store& store() = 0;                                // the daemon's own connection; thread-safe

    // Serves a request with the same machines, queue, limits and counters as one from outside. Blocks. Throws
    // store::NotFound if the function or version does not exist; all other failures are problems in the reply.
    virtual InvokeReply invoke(const InvokeRequest& request) = 0;

    // Of a function whose machines may be suspended (function.scale.suspend): saves those that run, once their requests
    // are done, and ends them; or starts them all. Returns how many. suspend() blocks until they are saved.
    // Throws store::NotFound, store::Conflict if the function has no such machines, and UserError if one could not be
    // saved or does not end.
    virtual unsigned suspend(const std::string& function) = 0;
    virtual unsigned resume(const std::string& function) = 0;

    // Migration (migration.cpp). hold(): from here on requests to this version, the only live one, wait, and the states
    // of machines that can be suspended are saved when this returns. Throws store::Conflict if another is live, and
    // UserError if its requests do not end in time, or if a state could not be saved; requests do not wait then.
    virtual void hold(const std::string& function, std::uint64_t version, std::chrono::milliseconds patience) = 0;
    // Machines that can be suspended go on, after a moment in which requests to them wait, and their states are saved
    // meanwhile; those that run do. What hold() saves is then added to that. Throws as hold() does.
    virtual std::vector<Checkpoint> checkpoint(const std::string& function, std::uint64_t version,
                                               std::chrono::milliseconds patience) = 0;
    // Ends a hold(): requests that wait are served here, unless forward() has been called.
    virtual void release(const std::string& function) = 0;
    // After Functions::move(): requests that wait, and later ones, go to the other daemon.
    virtual void forward(const std::string& function, const store::Moved& moved) = 0;
    // The saved state of one of the version's machines, which are numbered from 1. While it lives, nobody else uses it.
    // Throws store::NotFound, store::Conflict if a process has it.
    virtual store::SavedState saved_state(const std::string& function, std::uint64_t version, unsigned machine) = 0;
    // On the daemon that it comes to: begins to restore the machine, whose state is arriving in this file. Null if that
    // is not possible for the version. `bytes`: what there is of it; more is told to the process. Throws HostError.
    virtual std::unique_ptr<PreparedMachine> prepare(const std::string& function, std::uint64_t version,
                                                     unsigned machine, int state, std::uint64_t bytes) = 0;
    // Its state is complete and committed: the machine goes on in this process. Null: the one that was given is ended.
    virtual void set_prepared(const std::string& function, std::uint64_t version, unsigned machine,
                              std::unique_ptr<PreparedMachine> prepared) = 0;
    // How many machines with states that can be saved the version has; 0: they are not saved. Throws store::NotFound.
    virtual unsigned states(const std::string& function, std::uint64_t version) = 0;

    // Before a function goes live with these addresses: makes sure that it can listen there. With `keep` they are kept
    // for it, for some seconds. Throws store::Conflict if one is taken, UserError if it cannot be had.
    virtual void claim(const std::string& function, const std::vector<ListenAddress>& addresses, bool keep) = 0;

    // Reads the store at once. When it returns, new requests see the changes.
    virtual void refresh() = 0;
    // A process for the trial of a version, ready for any; null: it has none to give. Throws HostError.
    virtual std::unique_ptr<FunctionProcess> take_spare() = 0;
    virtual PassedTrials& passed_trials() = 0;
    // Whether functions of all tenants share copies of unpacked pages.
    virtual bool shares_across_tenants() const = 0;
    // Ends such a process. Returns at once: what it has in memory is given back behind.
    virtual void discard(std::unique_ptr<FunctionProcess> process) = 0;
    // A version had this snapshot: removes it once nothing needs it. Returns at once.
    virtual void superseded(const Digest& snapshot) = 0;
    // What SIGHUP does: reloads certificates, access log and store, each on its own. What fails to load stays in use as
    // it was. Throws the first failure (UserError, HostError).
    virtual void reload() = 0;

    // Of the cluster; null: the store is in none.
    virtual cluster::Nodes* nodes() = 0;
};

} // namespace kvmserver::daemon
