// Events of a command that boots a machine.
#pragma once
#include "src/cli/command.hpp"

namespace kvmserver::cli {

// Has the phases, the result and the diagnostics of this process told as events. `events` must outlive them.
void tell_events(Options& options, JsonEvents& events);

} // namespace kvmserver::cli
