// How `deploy` and `dev` have a program warmed up where its manifest does not say.
#pragma once
#include <string>
#include <vector>

#include "src/cli/platform/manifest.hpp"

namespace kvmserver::cli::platform {

// Words for `kvmserver snapshot`, which reads the same file: --warmup auto, the health hook's path, and at most so many
// seconds (0: as `snapshot` has it); none of them where the file says otherwise.
std::vector<std::string> warmup_words(const Manifest& manifest, unsigned seconds = 0);

} // namespace kvmserver::cli::platform
