// A command as a CLI11 app: its options, their help and their parsing.
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

Settings parse_options(const Command& command, const ParsedArguments& words);

} // namespace kvmserver::cli
