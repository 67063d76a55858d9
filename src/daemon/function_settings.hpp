// The manifest keys that concern the daemon.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/common/listen_address.hpp"

namespace kvmserver::daemon {

struct Scale {
    unsigned min = 0;                        // request machines to keep without requests
    std::optional<unsigned> max;             // most request machines; nothing: the daemon's --threads
    std::optional<std::uint64_t> idle_ns;    // before idle machines are stopped; nothing: the daemon's --idle
    std::optional<std::uint64_t> rest_ns;    // before an idle machine gives its memory back; 0: never; nothing: the
                                             // daemon's --rest, and never for machines that `min` keeps
    std::optional<std::uint64_t> linger_ns;  // before the process of a suspended machine ends; nothing: as idle_ns, at
                                             // most five minutes
    std::optional<unsigned> queue;           // requests that may wait for a machine; nothing: 1024
    std::uint64_t queue_ns = 30'000'000'000; // longest wait; 0: no limit
};

// What `protocol = "tcp"` and "tls-passthrough" bring with them: every connection gets a clean machine.
struct TcpSettings {
    bool by_name = false;                    // "tls-passthrough": by the routes, for the host that a client asks for
    std::vector<ListenAddress> listen;       // sorted; empty: by_name, or reached as another function's storage only
    bool server_first = false;               // a machine is given at accept, not at the client's first byte
    std::uint64_t drain_ns = 30'000'000'000; // for connections of a version that is no longer live
    bool operator==(const TcpSettings&) const = default;
};

// How a client's requests reach the same one of several machines that keep their state. One of the two is "".
struct Sticky {
    std::string header; // by its value
    std::string cookie; // that the daemon gives to the client
    bool operator==(const Sticky&) const = default;
};

struct FunctionSettings {
    Scale scale;
    std::optional<TcpSettings> tcp; // nothing: HTTP
    bool kept = false;    // [function] ephemeral = false: machines that keep their state; scale.min and max: how many
    bool suspend = false; // then: they are saved when they are idle
    unsigned concurrency = 32;        // then: connections that each of them serves at once
    Sticky sticky;                    // if there are several
    std::string storage;              // the function that it reaches in memory; "": none
    std::string after_restore;        // path; "": no hook
    std::string before_snapshot;      // the same
    std::vector<std::string> secrets; // names of the secrets for all functions that it wants
};

// Reads the manifest's JSON. Throws UserError (usage) that names the invalid key.
FunctionSettings function_settings(std::string_view manifest);

// The values that a function gets from `env set`, `secret set` and its manifest.
struct Values {
    std::string body;        // of the after-restore hook's request; "" without a hook
    std::string environment; // "NAME=VALUE", each with a NUL; added to the program's environment
    bool operator==(const Values&) const = default;
};
// Combines variables with the secrets of Secrets::values(). `own` names the function's own secrets; of the others it
// gets those that its manifest asks for. In the environment a secret replaces a variable of the same name.
Values values_of(const FunctionSettings& settings, const std::map<std::string, std::string>& env,
                 std::map<std::string, std::string> secrets, const std::vector<std::string>& own);

// Parses "60s", "500ms", "2m", "1h" or "0"; a number without a unit is seconds. Returns nothing for anything else.
std::optional<std::uint64_t> duration_ns(std::string_view text);

} // namespace kvmserver::daemon
