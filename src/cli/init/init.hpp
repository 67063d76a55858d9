#pragma once
#include <string>

#include "src/cli/command.hpp"

namespace kvmserver::cli {

Command init_command();

namespace init {
// Makes a valid function name: lower case, with '-' for characters that are not allowed.
std::string valid_name(const std::string& text);
} // namespace init

} // namespace kvmserver::cli
