// `kvmserver serve`: requests come in at one address, each goes to the function whose route it matches.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "src/daemon/control.hpp"
#include "src/daemon/jail_plans.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::daemon {

// What runs beside the functions: the API.
class Companion {
public:
    virtual ~Companion() = default;
    // Its files again. Any thread. Throws UserError; then the old ones stay in use.
    virtual void reload() = 0;
    // Takes no new requests.
    virtual void drain() = 0;
    // Waits for those that it has, cuts off what is left then. False: not even that ends them soon; then this
    // must not be destroyed.
    virtual bool finish(std::chrono::milliseconds patience) = 0;
};

struct ServeOptions {
    std::filesystem::path store;
    std::function<tinykvm::UniqueFd()>
        listen;                       // opens the public socket; not called when one was handed in (hand_over.hpp)
    std::string certificate, key;     // PEM files; "": plain HTTP
    unsigned machines = 1;            // request machines of a function at most; a manifest's scale.max goes before it
    double idle_seconds = 60;         // after which a function's process ends; a manifest's scale.idle goes before it
    std::uint64_t max_machines = 0;   // of all functions together; 0: no limit
    std::uint64_t log_rate = 1 << 20; // bytes that a function may print in a second; 0: no limit
    std::string access_log;           // "": none, "-": stdout, else a file
    unsigned threads = 1;             // of the front
    JailSettings jail;
    std::shared_ptr<Examinations> examinations; // never null
    std::uint64_t max_connections = 0;          // 0: as many as open files allow
    std::uint64_t max_per_client = 0;           // of these; 0: half of them, but for clients of this host
    std::uint64_t min_rate = 32;                // bytes a second of a client that is waited for; 0: any
    std::filesystem::path ceilings;             // a file of ceilings; "": none
    bool share_across_tenants = false;          // equal pages of different tenants are in memory once
    // Called when all is ready, before the line that says so; what it returns lives until requests are not
    // taken any more.
    std::function<std::unique_ptr<Companion>(Control&)> beside;
};

// Until SIGTERM or SIGINT; then requests in flight are finished. SIGHUP: reload; SIGUSR2: another process of
// this binary takes over (hand_over.hpp). Returns the exit code; throws UserError, HostError.
int serve(ServeOptions options);

} // namespace kvmserver::daemon
