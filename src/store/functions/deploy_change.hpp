// Tells in a line how a deployed version differs from the one before. Values of the environment are not told.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/store/functions/names.hpp"

namespace kvmserver::store {

// What of a function a deploy may change.
struct Deployed {
    std::string_view manifest; // JSON that check_manifest() accepts
    std::vector<Route> routes; // in any order
    std::map<std::string, std::string> env;
    bool operator==(const Deployed&) const = default;
};

// "+allow-net, -allow-read, args, max-request-time 8 -> 20, env COLOUR": the manifest's keys that were added (+),
// removed
// (-) or changed, without [run] and [function] in front of them; then routes and environment. "" if all is the same.
// Printable, of about 300 bytes at most; what is left out becomes "...".
std::string deploy_change(const Deployed& before, const Deployed& after);

} // namespace kvmserver::store
