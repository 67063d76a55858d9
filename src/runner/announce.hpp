#pragma once
#include "src/setup/setup.hpp"

namespace kvmserver {

// Prints the line that scripts wait for: Program 'NAME' loaded. ...
void announce(const Setup& setup, const Options& options, double seconds, const char* how);

// With Options::dev, the line on stdout after the last client, before the machines end.
inline constexpr const char* kDrained = "Program drained.";

} // namespace kvmserver
