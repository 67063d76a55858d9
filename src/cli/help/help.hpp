#pragma once
#include <span>
#include <string>

#include "src/cli/command.hpp"

namespace kvmserver::cli {

Command help_command();

// The manual page, kvmserver(1), as roff (man macros).
std::string manual(std::span<const Command> commands);

} // namespace kvmserver::cli
