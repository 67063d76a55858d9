// How `deploy` and `dev` warm up a program if its manifest does not say.
#pragma once
#include <string>
#include <vector>

#include "src/cli/platform/manifest.hpp"

namespace kvmserver::cli::platform {

// Options for `kvmserver snapshot`: --warmup auto, the path of the health hook, and a time limit in seconds (0: the
// default of `snapshot`). Each is left out if the file, which `snapshot` also reads, sets it.
std::vector<std::string> warmup_words(const Manifest& manifest, unsigned seconds = 0);

} // namespace kvmserver::cli::platform
