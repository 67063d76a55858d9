// Landlock (landlock(7)): the kernel checks paths and connections by rules of our own, whatever is mounted.
#pragma once
#include <span>

#include "src/jail/own_root.hpp"

namespace kvmserver::jail {

// From now on this thread, and those that it makes, reach files only beneath `shown` and /proc; signals
// reach nobody outside. Without `connect` it connects to no TCP port, and to no abstract socket of anybody outside.
// What an older kernel cannot restrict stays as it is. Needs no_new_privs. False, with errno: there is no landlock.
bool restrict(std::span<const Shown> shown, bool connect);

} // namespace kvmserver::jail
