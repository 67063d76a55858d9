// Finds out which words of the command line are whose: the command, our options, its operands, the guest's
// arguments.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "src/cli/command.hpp"

namespace kvmserver::cli {

// CLI11's subcommands cannot do this: options before and after the command, a program that is named like a
// command, and everything after the program left alone. It gets our options afterwards, in one canonical
// form.
struct ParsedArguments {
    const Command* command = nullptr; // nullptr: none was given
    std::vector<std::string> options; // "--name" or "--name=value", never empty values
    std::vector<std::string> operands;
    std::string bare_before; // see Invocation
};

// Options that every command has.
std::span<const OptionSpec> common_options(); // help, help-all, version

// Throws UserError (usage) for unknown commands and options, missing and empty values, and options of another
// command.
ParsedArguments parse_arguments(std::span<const Command> commands, const std::vector<std::string>& words);

// Of one command, or of all when it is nullptr; without hidden ones.
std::vector<std::string> option_names(std::span<const Command> commands, const Command* command);

} // namespace kvmserver::cli
