// The jailed process that examines one snapshot for the daemon, or compresses it anew, and then ends
// (src/snapshot/facts.hpp, recompress.hpp).
#pragma once
#include "src/jail/walls.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver {

// `control`: the socket to the daemon (src/protocol/worker_messages.hpp). Returns the exit code; throws HostError.
int run_examiner(tinykvm::UniqueFd control, jail::Mode mode);

} // namespace kvmserver
