// What the daemon can be asked and told while it serves; for the admin listener. Every call may come from any
// thread, none needs one of the daemon's own.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/ceilings/file.hpp"
#include "src/daemon/log_store.hpp"
#include "src/daemon/metrics.hpp"

namespace kvmserver::store {
class Store;
}

namespace kvmserver::daemon {

// A version that gets requests, or that still finishes some.
struct VersionLive {
    std::string function;
    std::uint64_t version = 0;
    unsigned percent = 0;           // 0: it only finishes what it has
    std::string state;              // "idle" (no process), "starting", "ready", "stopping", "failing" (it dies at once,
                                    // again and again)
    int pid = 0;                    // of its process; 0: none
    unsigned machines = 0;          // request machines in it
    unsigned busy = 0;              // of these
    std::uint64_t in_flight = 0;    // requests in machines
    std::uint64_t queued = 0;       // requests that wait for one
    std::uint64_t starts = 0;       // of its process, since the daemon began
    std::string last_failure;       // why its process ended, or could not be started; "": it never did
    std::uint64_t memory_bytes = 0; // of its process, proportional (PSS); 0 when there is none
    std::uint64_t resident_bytes = 0; // what others map too counted in full (RSS): says nothing about them
};

struct DaemonInfo {
    std::string address;    // of the public listener, as given
    std::uint16_t port = 0; // 0: it is no TCP socket
    bool tls = false;
    std::int64_t started_ms = 0;                                                // since 1970
    std::uint64_t functions = 0, processes = 0, machines = 0, max_machines = 0; // max: 0 is no limit
    bool draining = false;
};

struct InvokeRequest {
    std::string function;
    std::optional<std::uint64_t> version; // any that exists; nothing: by the traffic's percentages
    std::string method = "GET", path = "/";
    std::vector<std::pair<std::string, std::string>> headers; // Host, Content-Length and Connection are made
    std::string body;
    double timeout_seconds = 60;
    std::uint64_t most_bytes = 32ull << 20; // of the reply's body; more is an error
};

struct InvokeReply {
    unsigned status = 0;
    std::vector<std::pair<std::string, std::string>> headers; // as the program sent them, but for framing
    std::string body;
    std::uint64_t version = 0;
    std::string request_id;
    bool cold = false;
    std::uint64_t queue_us = 0, restore_us = 0, exec_us = 0, total_us = 0;
    // Set when there is no reply of the program: what a client of the public listener would have been told.
    std::string problem_code, problem_detail, problem_hint;
};

class Control {
public:
    virtual ~Control() = default;

    virtual DaemonInfo info() const = 0;
    virtual std::vector<VersionLive> live() const = 0; // by function and version
    virtual MetricsSnapshot metrics() const = 0;
    virtual LogStore& logs() = 0;
    virtual std::shared_ptr<const CeilingsFile> ceilings() const = 0; // as it was read last
    virtual store::Store& store() = 0;                                // the daemon's own connection: thread-safe

    // Through the same machines, queue, limits and counters as a request from outside. Blocks. Throws
    // store::NotFound for a function or version that is not there; everything else is a reply with a problem.
    virtual InvokeReply invoke(const InvokeRequest& request) = 0;

    // Looks at the store at once, as after a change by the caller: when it returns, new requests see the
    // change.
    virtual void refresh() = 0;
    // What SIGHUP does: certificates, access log and store are read again, each whatever becomes of the
    // others. Throws the first failure (UserError, HostError); what was in use then stays.
    virtual void reload() = 0;
};

} // namespace kvmserver::daemon
