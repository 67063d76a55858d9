#pragma once
#include <string>

#include "src/cli/options/config_file.hpp"

namespace kvmserver::cli {

// An options file that reads back to the same: what is set, defaults as comments. `settings` as options_from
// left them. `command` is one of kRun, kSnapshot, kSnaprun.
std::string config_text(const Settings& settings, unsigned command, const RunSection& run,
                        const std::optional<StorageSection>& storage);

} // namespace kvmserver::cli
