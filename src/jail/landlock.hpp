// Landlock (landlock(7)): the kernel checks paths by rules of our own, whatever is mounted.
#pragma once
#include <span>

#include "src/jail/own_root.hpp"

namespace kvmserver::jail {

// From now on this thread, and those that it makes, reach files only beneath `shown` and /proc; `apart`: no signals to and no abstract sockets
// of processes that are not in the same room. Needs no_new_privs. False, with errno: there is no landlock.
bool restrict_paths(std::span<const Shown> shown, bool apart);

} // namespace kvmserver::jail
