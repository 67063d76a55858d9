// What a shell needs to complete our command line, and the scripts generated from it.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "src/cli/command.hpp"

namespace kvmserver::cli {

struct CompletedOption {
    std::string name, letter, help;
    std::string value; // placeholder: FILE and DIR complete to paths
    bool takes_value = false;
    std::vector<std::string> choices;
    Words words = Words::none; // of its value
};

struct Completed {
    std::string name, summary;
    Operands operands = Operands::none;
    std::vector<std::string> choices; // of the operand
    std::vector<Words> words;         // by operand
    std::vector<CompletedOption> options;
};

// The command that lists them, one a line: "kvmserver completion --words functions".
std::string words_command(Words words);

std::string bash_completion(std::span<const Completed> commands);
std::string zsh_completion(std::span<const Completed> commands);
std::string fish_completion(std::span<const Completed> commands);

} // namespace kvmserver::cli
