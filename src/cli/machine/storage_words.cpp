#include "src/cli/machine/storage_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "src/cli/app.hpp"
#include "src/cli/machine/shims.hpp"
#include "src/cli/options/arguments.hpp"
#include "src/cli/options/options_from.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

constexpr std::string_view kStorage = "storage", kOneToOne = "1-to-1";

// What the second program has of its own. It needs no permission to listen: nobody else reaches it there.
constexpr std::array<std::string_view, 19> kStorageOptions{"allow-all",
                                                           "allow-read",
                                                           "allow-write",
                                                           "allow-env",
                                                           "allow-connect",
                                                           "volume",
                                                           "cwd",
                                                           "env",
                                                           "cpu",
                                                           "code-as-is",
                                                           "max-boot-time",
                                                           "max-main-memory",
                                                           "max-address-space",
                                                           "core-dump",
                                                           "verbose",
                                                           "verbose-syscalls",
                                                           "verbose-mmap-syscalls",
                                                           "verbose-thread-syscalls",
                                                           "no-executable-heap"};

std::shared_ptr<const Options> options_of(Settings settings, RunSection run, bool one_to_one, const Options& main,
                                          Context& context) {
    auto options = std::make_shared<Options>(options_from(settings, context.folder, context.cpus));
    options->one_to_one = one_to_one;
    options->program = std::move(run.program);
    options->args = std::move(run.args);
    options->hidden = main.hidden;
    substitute_shims(*options, context);
    return options;
}

} // namespace

bool is_storage_option(std::string_view name) {
    return std::ranges::find(kStorageOptions, name) != kStorageOptions.end();
}

Command storage_command() {
    std::vector<OptionSpec> options{
        {.name = kOneToOne, .group = "Options", .help = "a machine of it for each request machine, not one for all"}};
    std::ranges::copy_if(machine_options(), std::back_inserter(options),
                         [](const OptionSpec& spec) { return is_storage_option(spec.name); });
    return {.name = std::string(kStorage),
            .synopsis = "PROGRAM [ARGS...]",
            .summary = "a second program, which keeps its state; the first connects to it in memory",
            .operands = Operands::guest,
            .options = std::move(options),
            .action = {},
            .storage = true};
}

std::shared_ptr<const Options> storage_options(const std::vector<std::string>& words, const Options& main,
                                               Context& context) {
    const Command command = storage_command();
    ParsedArguments parsed = parse_arguments(std::span(&command, 1), words);
    if (parsed.asked.contains("help") || parsed.asked.contains("help-all")) {
        Command shown = command;
        shown.name = "run ++ storage";
        shown.storage = false;
        context.out << make_app(shown, true)->help();
        return nullptr;
    }
    if (parsed.storage)
        usage_error(
            "'++ storage' twice: there is one storage program; if the second is an argument, write -- before the "
            "program");
    if (parsed.operands.empty())
        usage_error("++ storage needs a PROGRAM; see kvmserver run ++ storage --help");
    const bool one_to_one = is_set(parsed.settings, kOneToOne);
    if (const auto given = parsed.settings.find(std::string(kOneToOne));
        given != parsed.settings.end() && !one_to_one && given->second.values.front() != "false")
        usage_error("--1-to-1: '" + given->second.values.front() + "' is neither true nor false");
    parsed.settings.erase(std::string(kOneToOne));
    return options_of(std::move(parsed.settings),
                      {parsed.operands.front(), {parsed.operands.begin() + 1, parsed.operands.end()}}, one_to_one, main,
                      context);
}

std::shared_ptr<const Options> storage_options(StorageSection section, const Options& main, Context& context) {
    for (const auto& [name, setting] : section.settings)
        if (!is_storage_option(name))
            usage_error(
                fmt::format("{}: it is no option of the storage program; kvmserver run ++ storage --help lists them",
                            setting.label(name)));
    return options_of(std::move(section.settings), std::move(section.run), section.one_to_one, main, context);
}

} // namespace kvmserver::cli
