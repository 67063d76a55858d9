// Landlock (landlock(7)): a second check of paths and connections, by the kernel, independent of mounts.
#pragma once
#include <span>

#include "src/jail/own_root.hpp"

namespace kvmserver::jail {

// Restricts the calling thread and threads that it starts. They reach files only beneath `shown` and /proc, and signal
// no process outside. Without `connect` they connect to no TCP port and to no abstract socket of a process outside.
// What an older kernel cannot restrict stays unrestricted. Requires no_new_privs. False, with errno, when the kernel
// has no Landlock.
bool restrict(std::span<const Shown> shown, bool connect);

} // namespace kvmserver::jail
