// A command as a CLI11 app: its options, and their help.
#pragma once
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "src/cli/command.hpp"
#include "src/cli/options/arguments.hpp"

namespace kvmserver::cli {

// With everything: also the options that only --help-all shows.
std::unique_ptr<CLI::App> make_app(const Command& command, bool everything);

// The overview of all commands.
std::string overview(std::span<const Command> commands);

} // namespace kvmserver::cli
