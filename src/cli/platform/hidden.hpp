// Secrets that a person types.
#pragma once
#include <string>

#include "src/cli/command.hpp"

namespace kvmserver::cli::platform {

// A line of stdin, up to 4096 bytes.
std::string read_line();
// Asks on the terminal, which does not show what is typed. A signal restores the terminal first.
std::string ask_hidden(const std::string& question, Context& context);

} // namespace kvmserver::cli::platform
