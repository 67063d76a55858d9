#pragma once
#include "src/cli/command.hpp"

namespace kvmserver::cli {

Command dev_command();

} // namespace kvmserver::cli
