#pragma once
#include "src/setup/options.hpp"

namespace kvmserver {

// For `kvmserver dev`: boots a program and serves it over HTTP as `snapshot` and then `snaprun` would, without a file.
// Only its first address is served. Returns the exit code.
int run_dev(const Options& options);

} // namespace kvmserver
