#pragma once
#include <string>

#include "src/cli/command.hpp"

namespace kvmserver::cli {

Command init_command();

namespace init {
// A function's name made of any text: lower case, what may not be in it becomes '-'.
std::string valid_name(const std::string& text);
} // namespace init

} // namespace kvmserver::cli
