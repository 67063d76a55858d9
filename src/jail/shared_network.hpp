// A network namespace for all processes whose programs may not connect. One for each of them would take 0.4 MiB of the
// kernel's memory.
#pragma once
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::jail {

// Moves the calling process, which has a single thread, to a new network namespace, and returns the one that it was in.
// Nothing is reached in the new one: its loopback is down, so it has no routes. Sockets can be bound to any address
// nevertheless. What could join its processes are abstract Unix sockets, which Landlock keeps apart (landlock.hpp). If
// this kernel's Landlock cannot, or this user may not make namespaces, the process stays where it is, and the
// descriptor is empty. Throws HostError if it can neither stay nor go on.
tinykvm::UniqueFd enter_shared_network();

} // namespace kvmserver::jail
