// What the manifest that a version was deployed with says to the daemon.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvmserver::daemon {

struct Scale {
    unsigned min = 0;                        // request machines that are kept, asked or not
    std::optional<unsigned> max;             // of its process; nothing: the daemon's --threads
    std::optional<std::uint64_t> idle_ns;    // without a request until they are given up; nothing: the daemon's --idle
    std::optional<unsigned> queue;           // requests that may wait for a machine; nothing: 1024
    std::uint64_t queue_ns = 30'000'000'000; // and how long; 0: no limit
};

struct FunctionSettings {
    Scale scale;
    std::string after_restore;        // path; "": no such hook
    std::vector<std::string> secrets; // names of those for all that it wants
};

// From the manifest's JSON. Throws UserError (usage) naming the key whose value cannot be.
FunctionSettings function_settings(std::string_view manifest);

// What a function is given by `env set`, `secret set` and its manifest.
struct Values {
    std::string body;        // of the after-restore hook's request; "" without one
    std::string environment; // "NAME=VALUE" and a NUL each, to be put where the program's own lie
    bool operator==(const Values&) const = default;
};
// From its variables and the secrets of Secrets::values(): `own` names those that are the function's; those for all it
// gets only where its manifest asks for them. In the environment a secret hides a variable of its name.
Values values_of(const FunctionSettings& settings, const std::map<std::string, std::string>& env,
                 std::map<std::string, std::string> secrets, const std::vector<std::string>& own);

// "60s", "500ms", "2m", "1h", "0"; a number without a unit is seconds. Nothing: it is none of these.
std::optional<std::uint64_t> duration_ns(std::string_view text);

} // namespace kvmserver::daemon
