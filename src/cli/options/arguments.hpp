// Finds out which words of the command line are whose: the command, our options, its operands, the guest's
// arguments. CLI11 reads the options.
#pragma once
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "src/cli/command.hpp"

namespace kvmserver::cli {

// Two apps read the words, one with the options of all commands up to the command, one with the command's own
// behind it. Subcommands of CLI11 2.1.2 do not fit: of "run run snapshot" they take the program's argument for a
// command, and in "-o f snapshot p" they do not know the option.
struct ParsedArguments {
    const Command* command = nullptr; // nullptr: none was given
    Settings settings;
    std::set<std::string> asked; // of common_options()
    std::vector<std::string> operands;
    std::string bare_before;                         // see Invocation
    std::optional<std::vector<std::string>> storage; // the same
};

// Options that every command has.
std::span<const OptionSpec> common_options(); // help, help-all, version

// Throws UserError (usage) for unknown commands and options, missing and empty values, and options of another
// command.
ParsedArguments parse_arguments(std::span<const Command> commands, const std::vector<std::string>& words);

} // namespace kvmserver::cli
