// How `deploy` and `dev` warm up a program.
#pragma once
#include <string>
#include <vector>

#include "src/cli/platform/manifest.hpp"

namespace kvmserver::cli::platform {

// Whether it is not warmed up since it has a storage, which a trial request cannot reach, and names no path that needs
// none.
bool lacks_warmup_for_storage(const Manifest& manifest);

// Options for `kvmserver snapshot`: --warmup auto (a TCP function has no requests to warm up with) and the path of the
// health hook. Each is left out if the file, which `snapshot` also reads, sets it.
std::vector<std::string> warmup_words(const Manifest& manifest);

// The same for `dev`, where a person waits: no warm-up in place of --warmup auto. A number in the file counts.
std::vector<std::string> short_warmup_words(const Manifest& manifest);

} // namespace kvmserver::cli::platform
