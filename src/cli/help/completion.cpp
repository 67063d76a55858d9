// kvmserver completion: prints a completion script, generated from the commands' CLI11 options.
#include "src/cli/help/completion.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "src/cli/app.hpp"
#include "src/cli/command.hpp"
#include "src/cli/help/nearest.hpp"
#include "src/cli/platform/platform.hpp"
#include "src/remote/remotes.hpp"
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
                        .words = command.words,
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
            if (each.name == "remote")
                each.words = Words::remotes;
            else if (each.value.find('|') != each.value.npos)
                each.choices = words_of(each.value);
            entry.options.push_back(std::move(each));
        }
        result.push_back(std::move(entry));
    }
    return result;
}

constexpr std::pair<Words, std::string_view> kLists[] = {
    {Words::functions, "functions"}, {Words::versions, "versions"}, {Words::remotes, "remotes"}};

constexpr OptionSpec kWords{.name = "words",
                            .kind = Kind::text,
                            .group = "Options",
                            .value = "WHICH",
                            .help = "what the scripts offer: functions, remotes, or versions of NAME"};

std::vector<std::string> listed(std::string_view which, const Invocation& invocation, Context& context) {
    std::vector<std::string> words;
    if (which == "remotes") {
        const remote::Remotes remotes(remote::Remotes::default_file());
        for (const auto& [name, remote] : remotes.all())
            words.push_back(name);
        return words;
    }
    const auto platform = platform::connect(invocation, context);
    if (which == "functions") {
        if (platform->empty())
            return words;
        const nlohmann::json all = platform->call("GET", "/v1/functions");
        for (const auto& function : all.at("functions"))
            words.push_back(function.at("name"));
        return words;
    }
    platform::expect_operands(invocation, "completion --words versions", "NAME", 1, 1);
    const std::string target = platform::target_of({"functions", invocation.operands.front(), "versions"});
    const nlohmann::json all = platform->call("GET", target);
    for (const auto& version : all.at("versions"))
        words.push_back(fmt::format("v{}", version.at("version").get<std::uint64_t>()));
    return words;
}

int list_words(const std::string& which, const Invocation& invocation, Context& context) {
    if (std::ranges::find(kLists, which, [](const auto& list) { return list.second; }) == std::end(kLists))
        throw tinykvm::UserError(tinykvm::ExitCode::usage,
                                 fmt::format("--words: '{}' is none of functions, versions, remotes", which));
    for (const std::string& word : listed(which, invocation, context))
        context.out << word << '\n';
    return 0;
}

int completion(const Invocation& invocation, Context& context) {
    if (const auto which = platform::text(invocation, kWords.name))
        return list_words(*which, invocation, context);
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

std::string words_command(Words words) {
    const auto list = std::ranges::find(kLists, words, [](const auto& each) { return each.first; });
    return list == std::end(kLists) ? "" : fmt::format("kvmserver completion --words {}", list->second);
}

Command completion_command() {
    return {.name = "completion",
            .synopsis = "bash|zsh|fish",
            .summary = "print a completion script for a shell",
            .operands = Operands::ours,
            .options = {kWords, platform::kStore, platform::kRemote, platform::kTokenFile, platform::kCacert},
            .action = completion};
}

} // namespace kvmserver::cli
