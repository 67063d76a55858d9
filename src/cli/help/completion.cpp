// kvmserver completion: prints a completion script, generated from the commands' CLI11 options.
#include "src/cli/help/completion.hpp"

#include <fmt/format.h>

#include "src/cli/app.hpp"
#include "src/cli/command.hpp"
#include "src/cli/help/nearest.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

std::vector<std::string> words_of(std::string text) {
    text = CLI::detail::find_and_replace(text, "|", ",");
    return split_commas(text);
}

std::vector<Completed> completed(std::span<const Command> commands) {
    std::vector<Completed> result;
    for (const Command& command : commands) {
        Completed entry{.name = command.name,
                        .summary = command.summary,
                        .operands = command.operands,
                        .choices = {},
                        .options = {}};
        const std::string first = command.synopsis.substr(0, command.synopsis.find(' '));
        if (first.find('|') != first.npos)
            entry.choices = words_of(first);
        const auto app = make_app(command, true);
        for (const CLI::Option* option :
             app->get_options([](const CLI::Option* o) { return !o->get_group().empty(); })) {
            CompletedOption each;
            each.name = option->get_lnames().front();
            each.help = option->get_description();
            each.value = option->get_type_name();
            if (!option->get_snames().empty())
                each.letter = option->get_snames().front();
            each.takes_value = option->get_items_expected_max() > 0;
            if (each.value.find('|') != each.value.npos)
                each.choices = words_of(each.value);
            entry.options.push_back(std::move(each));
        }
        result.push_back(std::move(entry));
    }
    return result;
}

int completion(const Invocation& invocation, Context& context) {
    const std::vector<std::string> shells{"bash", "zsh", "fish"};
    if (invocation.operands.size() != 1)
        throw tinykvm::UserError(tinykvm::ExitCode::usage, "completion needs one SHELL: bash, zsh or fish");
    const std::string& shell = invocation.operands.front();
    const std::vector<Completed> commands = completed(context.commands);
    if (shell == "bash")
        context.out << bash_completion(commands);
    else if (shell == "zsh")
        context.out << zsh_completion(commands);
    else if (shell == "fish")
        context.out << fish_completion(commands);
    else
        throw tinykvm::UserError(
            tinykvm::ExitCode::usage,
            fmt::format("no completion for '{}', only for bash, zsh and fish{}", shell, did_you_mean(shell, shells)));
    return 0;
}

} // namespace

Command completion_command() {
    return {.name = "completion",
            .synopsis = "bash|zsh|fish",
            .summary = "print a completion script for a shell",
            .operands = Operands::ours,
            .options = {},
            .action = completion};
}

} // namespace kvmserver::cli
