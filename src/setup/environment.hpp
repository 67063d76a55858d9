// The environment with which a program starts.
#pragma once
#include <string>
#include <vector>

#include "src/setup/options.hpp"

namespace kvmserver {

// "NAME=VALUE" strings: the host's variables that the permissions allow, then those of --env. Variables of --late-env
// are left out.
std::vector<std::string> guest_environment(const Options& options);

} // namespace kvmserver
