// The environment variables that a program begins with.
#pragma once
#include <string>
#include <vector>

#include "src/setup/options.hpp"

namespace kvmserver {

// "NAME=VALUE" of the host's variables that the permissions let through, then those of --env; without those of
// --late-env.
std::vector<std::string> guest_environment(const Options& options);

} // namespace kvmserver
