// A function process: restores one version and serves the requests that the daemon hands to it (src/protocol).
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "src/jail/walls.hpp"
#include "src/setup/options.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver {

struct FunctionOptions {
    tinykvm::UniqueFd control; // the socket to the daemon: worker_messages.hpp
    Options machine;           // the options that snaprun would be given
    jail::Mode jail = jail::Mode::automatic;
    // The host's network namespace when this process is in the shared one (src/jail/shared_network.hpp).
    tinykvm::UniqueFd hosts_network;
    std::uint64_t ahead_bytes = 0; // image memory to prepare before the snapshot is known
    // Called with the name of what is served ("hello v4") once it is known.
    std::function<void(const std::string& name)> on_name;
    // For tests: called on each machine's thread before it serves, with the environment that the function was given.
    // The code does what an attacker who escaped from a machine could do.
    std::function<void(const std::string& name, const std::vector<std::string>& environment)> on_machine;
};

// Prepares, waits for the assignment and serves until the daemon closes `control`. Returns the exit code; throws
// UserError, HostError.
int run_function(FunctionOptions options);

} // namespace kvmserver
