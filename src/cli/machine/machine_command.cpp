#include "src/cli/machine/machine_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "src/cli/events/machine_events.hpp"
#include "src/cli/machine/shims.hpp"
#include "src/cli/machine/storage_words.hpp"
#include "src/cli/options/config_file.hpp"
#include "src/cli/options/options_from.hpp"
#include "src/cli/options/print_config.hpp"
#include "src/cli/platform/platform.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/elf/stack.hpp"

namespace kvmserver::cli {
namespace {

constexpr const char* kDefaultFile = "kvmserver.toml";

ConfigFile config_for(unsigned command, const Settings& line, bool with_run) {
    const Section section = command == kSnapshot  ? Section::snapshot
                            : command == kSnaprun ? Section::snaprun
                                                  : Section::none;
    if (const auto given = line.find("config"); given != line.end())
        return read_config(given->second.values.front(), machine_options(), with_run, section);
    std::error_code missing;
    if (!std::filesystem::exists(kDefaultFile, missing))
        return {};
    return read_config(kDefaultFile, machine_options(), with_run, section);
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

// Adds the variables of [function.env] that are not given otherwise. In a snapshot they can be replaced by `snaprun
// --env`, as the daemon does, unless they are too long.
void add_function_env(const std::vector<std::string>& variables, unsigned command, Settings& settings) {
    const auto name_of = [](const std::string& variable) { return variable.substr(0, variable.find('=')); };
    const auto given = [&](const std::string& name) {
        for (const char* const option : {"env", "late-env"})
            if (const auto at = settings.find(option); at != settings.end())
                for (const std::string& value : at->second.values)
                    if (name_of(value) == name)
                        return true;
        return false;
    };
    for (const std::string& variable : variables)
        if (!given(name_of(variable)))
            settings[command == kSnapshot && variable.size() < tinykvm::kLateEnvBytes ? "late-env" : "env"]
                .values.push_back(variable);
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
    ConfigFile file = config_for(command, invocation.settings, command != kSnaprun && invocation.operands.empty());
    const bool told = is_set(invocation.settings, "temporary") || is_set(invocation.settings, "dev"); // by their parent
    if (!told)
        report_unknown(file.unknown, is_set(invocation.settings, kStrict.name), "--strict", context);
    check_swallowed(invocation);

    Settings settings = merge(std::move(file.settings), invocation.settings);
    bool print = false;
    if (const auto at = settings.find("print-config"); at != settings.end())
        print = at->second.values.front() == "true";
    if (!told) { // else their parent gives them
        add_function_env(file.function_env, command, settings);
        if (file.before_snapshot && command == kSnapshot)
            settings.emplace("before-snapshot", *file.before_snapshot); // unless it is given otherwise
    }
    settings.erase("print-config");
    settings.erase("config");
    settings.erase(std::string(kStrict.name));
    settings.erase(std::string(kEventsOption));
    settings.erase("json");
    if (print && context.events)
        throw tinykvm::UserError(tinykvm::ExitCode::usage, "--print-config excludes --json; give one of them");

    MachineJob job;
    job.options = options_from(settings, context.folder, context.cpus);
    if (command != kSnapshot && invocation.settings.contains("max-request-cpu") && !job.options.ephemeral)
        throw tinykvm::UserError(tinykvm::ExitCode::usage,
                                 "--max-request-cpu needs -e or --http: a machine that keeps its state serves many "
                                 "requests at once");
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
                                                                   " excludes ++ storage; [storage] is that in a file");
        job.options.storage = storage_options(*invocation.storage, job.options, context);
        if (!job.options.storage) { // its help was printed
            job.done = true;
            return job;
        }
    } else if (job.options.dev && file.function_storage) {
        job.options.storage = storage_options(*file.function_storage, job.options, context);
    } else if (file.storage && !told) {
        job.options.storage = storage_options(*file.storage, job.options, context);
    }
    note_without_effect(command, settings, job.options, context.err);
    if (print) {
        const RunSection run = command == kRun ? RunSection{job.program, job.args} : RunSection{};
        context.out << config_text(settings, command, run, file.storage);
        job.done = true;
    } else if ((command & (kRun | kSnapshot)) != 0 && !job.program.empty()) {
        job.options.program = job.program;
        job.options.args = job.args;
        substitute_shims(job.options, context);
    }
    return job;
}

} // namespace kvmserver::cli
