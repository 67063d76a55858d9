#pragma once
#include "src/setup/options.hpp"

namespace kvmserver {

// For `kvmserver dev`: boots a program and serves it over HTTP as `snapshot` and then `snaprun` would, without a file.
// Options::listen is an inherited socket; no other socket listens. Returns the exit code.
int run_dev(const Options& options);

} // namespace kvmserver
