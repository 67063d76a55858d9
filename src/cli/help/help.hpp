#pragma once
#include <span>
#include <string>

#include "src/cli/command.hpp"

namespace kvmserver::cli {

Command help_command();

// The manual page kvmserver(1), as roff (man macros).
std::string manual(std::span<const Command> commands);
// kvmserver-COMMAND(1)
std::string manual_of(const Command& command);

} // namespace kvmserver::cli
