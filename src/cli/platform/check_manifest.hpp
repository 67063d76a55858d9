// What can be found wrong in a manifest without building or booting: for `deploy`, before a build that may take long,
// and for its --dry-run.
#pragma once
#include "src/cli/platform/manifest.hpp"

namespace kvmserver::cli::platform {

// Throws UserError for an option's value that is invalid, and for a program that is not found and that no build command
// could make. Warns if the first argument looks like a script that is not there.
void check_manifest(const Manifest& manifest, Context& context);

} // namespace kvmserver::cli::platform
