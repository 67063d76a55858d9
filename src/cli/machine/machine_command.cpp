#include "src/cli/machine/machine_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "src/cli/events/machine_events.hpp"
#include "src/cli/machine/storage_words.hpp"
#include "src/cli/options/config_file.hpp"
#include "src/cli/options/options_from.hpp"
#include "src/cli/options/print_config.hpp"
#include "src/cli/platform/platform.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

constexpr const char* kDefaultFile = "kvmserver.toml";

ConfigFile config_for(const Settings& line, bool with_run) {
    if (const auto given = line.find("config"); given != line.end())
        return read_config(given->second.values.front(), machine_options(), with_run);
    std::error_code missing;
    if (!std::filesystem::exists(kDefaultFile, missing))
        return {};
    return read_config(kDefaultFile, machine_options(), with_run);
}

std::string command_name(unsigned command) {
    return command == kRun ? "run" : command == kSnapshot ? "snapshot" : "snaprun";
}

// Warns about options without effect: always if they are on the command line, such as `kvmserver snaprun --env A=1
// app.snap`, where the user expects an effect. Options of other commands in a shared file are reported only in verbose
// mode.
void note_without_effect(unsigned command, const Settings& settings, const Options& options, std::ostream& err) {
    const bool verbose = options.verbose.general;
    const unsigned commands = options.dev ? kSnapshot | kSnaprun : command; // `dev` does what these two do
    std::vector<std::string> foreign, misplaced;
    for (const OptionSpec& spec : machine_options()) {
        const auto at = settings.find(spec.name);
        if (at == settings.end() || (spec.without_effect & commands) != commands)
            continue;
        if (spec.group == kCompatibility)
            foreign.push_back("--" + std::string(spec.name));
        else if (verbose || !at->second.from_file())
            misplaced.push_back("--" + std::string(spec.name));
    }
    if (!foreign.empty())
        err << fmt::format("kvmserver: accepted without effect: {}\n", fmt::join(foreign, " "));
    if (!misplaced.empty())
        err << fmt::format("kvmserver: without effect on {}: {}\n", command_name(command), fmt::join(misplaced, " "));
}

// Catches `--allow-read /usr/lib ./prog`, which would make /usr/lib the program.
void check_swallowed(const Invocation& invocation) {
    if (invocation.bare_before.empty() || invocation.operands.empty())
        return;
    const std::string& word = invocation.operands.front();
    std::error_code error;
    const auto status = std::filesystem::status(word, error);
    const bool address = !std::filesystem::exists(status) &&
                         (word.find(':') != word.npos || word.find_first_not_of("0123456789.") == word.npos);
    if (address || std::filesystem::is_directory(status))
        throw tinykvm::UserError(tinykvm::ExitCode::usage,
                                 fmt::format("'{}' is not a program; --{} takes its value with '=': --{}={}", word,
                                             invocation.bare_before, invocation.bare_before, word));
}

// kvmserver's own folders on this host, which no program may see.
std::vector<std::string> own_folders(const Options& options, const Context& context) {
    std::vector<std::string> folders;
    if (!options.cache.empty())
        folders.push_back(options.cache);
    try {
        folders.push_back(platform::store_path({}, context));
    } catch (const tinykvm::UserError&) { // no home, so no store
    }
    return folders;
}

} // namespace

std::vector<OptionSpec> options_of(unsigned command) {
    std::vector<OptionSpec> options;
    std::ranges::copy_if(machine_options(), std::back_inserter(options),
                         [&](const OptionSpec& spec) { return (spec.offered & command) != 0; });
    return options;
}

MachineJob prepare(unsigned command, const Invocation& invocation, Context& context) {
    // A program on the command line replaces [run], which then need not even be valid.
    ConfigFile file = config_for(invocation.settings, command != kSnaprun && invocation.operands.empty());
    const bool told = is_set(invocation.settings, "temporary") || is_set(invocation.settings, "dev"); // by their parent
    if (!told)
        report_warnings(file.warnings, is_set(invocation.settings, kStrict.name), context);
    check_swallowed(invocation);

    Settings settings = merge(std::move(file.settings), invocation.settings);
    bool print = false;
    if (const auto at = settings.find("print-config"); at != settings.end())
        print = at->second.values.front() == "true";
    settings.erase("print-config");
    settings.erase("config");
    settings.erase(std::string(kStrict.name));
    settings.erase(std::string(kEventsOption));
    settings.erase("json");
    if (print && context.events)
        throw tinykvm::UserError(tinykvm::ExitCode::usage, "--print-config excludes --json; give one of them");

    MachineJob job;
    job.options = options_from(settings, context.folder, context.cpus);
    if (context.events)
        tell_events(job.options, *context.events);
    job.options.hidden = own_folders(job.options, context);
    if (!invocation.operands.empty()) {
        job.program = invocation.operands.front();
        job.args.assign(invocation.operands.begin() + 1, invocation.operands.end());
    } else if (file.run) {
        job.program = file.run->program;
        job.args = file.run->args;
    }
    if (invocation.storage) {
        if (print || job.options.dev)
            throw tinykvm::UserError(tinykvm::ExitCode::usage, std::string(print ? "--print-config" : "--dev") +
                                                                   " excludes ++ storage, which is in no file");
        job.options.storage = storage_options(*invocation.storage, job.options, context);
        if (!job.options.storage) { // its help was printed
            job.done = true;
            return job;
        }
    }
    note_without_effect(command, settings, job.options, context.err);
    if (print) {
        const RunSection run = command == kRun ? RunSection{job.program, job.args} : RunSection{};
        context.out << config_text(settings, command, run);
        job.done = true;
    }
    return job;
}

} // namespace kvmserver::cli
