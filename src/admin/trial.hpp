// Tries a snapshot before it serves requests.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "src/admin/call.hpp"
#include "src/admin/ceilings.hpp"
#include "src/common/digest.hpp"

namespace kvmserver::admin {

struct TrialOf {
    std::string function;
    Digest snapshot;
    std::string manifest = "{}"; // JSON
    std::string tenant;          // store::VersionRecord::tenant
    bool activate = true;        // it gets requests
    std::map<std::string, std::string> env;
    std::vector<std::string> secrets;                    // names of those that the function has
    std::map<std::string, std::string> new_secrets = {}; // that it will have, too
};

// Starts the snapshot in a process of its own and asks its health path, if it has one. Waits for its turn. Throws what
// require_health() throws (src/daemon/health.hpp).
void try_out(Call& call, const Grants& grants, const TrialOf& trial);

} // namespace kvmserver::admin
