// The template of function processes: a process that has started and waits to be forked. What it has in memory is
// shared by all that come from it until they write to it: half a megabyte that its start has relocated, among others.
// And a fork takes a fraction of the time of a start.
#pragma once
#include <cstdint>
#include <optional>

#include "src/jail/walls.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::daemon {

// What a forked process is to do.
struct ForkedFunction {
    std::uint64_t ahead_bytes = 0;   // FunctionOptions::ahead_bytes
    tinykvm::UniqueFd hosts_network; // FunctionOptions::hosts_network
};

// Forks a process for each `fork` that comes (src/protocol/worker_messages.hpp), and returns in that process, which has
// stdout, stderr and, in place of `control`, its own control socket. In the template it returns nothing, once the
// daemon has closed `control`. Throws HostError.
std::optional<ForkedFunction> fork_functions(int control, jail::Mode mode);

} // namespace kvmserver::daemon
