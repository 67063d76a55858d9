#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <thread>

#include "src/cli/app.hpp"
#include "src/cli/command.hpp"
#include "src/cli/events/json_events.hpp"
#include "src/cli/options/arguments.hpp"
#include "src/cli/options/options_from.hpp"
#include "src/cli/platform/similar.hpp"
#include "src/cli/version.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

using tinykvm::ExitCode;

std::string help_text(std::span<const Command> commands, const Command* command, bool everything) {
    if (command) {
        std::string text = make_app(*command, everything)->help();
        if (!everything && command->options.size() > 20) // there is more to see
            text += "\nMore: kvmserver " + command->name + " --help-all\n";
        return text;
    }
    std::string text = overview(commands);
    if (everything)
        for (const Command& each : commands)
            text += "\n---\n" + make_app(each, true)->help();
    return text;
}

// Null if the command prints none.
std::unique_ptr<JsonEvents> events_of(const Command& command, const Settings& settings, const Context& context) {
    if (const auto given = settings.find(kEventsOption); given != settings.end())
        return std::make_unique<JsonEvents>(descriptor_of(given->second, kEventsOption), JsonEvents::Role::child,
                                            false);
    if (!command.has_events || !is_set(settings, "json"))
        return nullptr;
    if (context.events_fd < 0)
        return std::make_unique<JsonEvents>(context.out);
    return std::make_unique<JsonEvents>(context.events_fd, JsonEvents::Role::whole, is_set(settings, "quiet"));
}

int run_with_events(const Command& command, const Invocation& invocation, const Context& given, JsonEvents& events) {
    Context context{.out = given.out,
                    .err = events.messages(),
                    .folder = given.folder,
                    .cpus = given.cpus,
                    .commands = given.commands,
                    .events = &events};
    const auto failed = [&](ExitCode code, const char* message) {
        events.error(message, static_cast<int>(code));
        return events.finish(static_cast<int>(code));
    };
    try {
        return events.finish(command.action(invocation, context));
    } catch (const tinykvm::UserError& error) {
        return failed(error.code(), error.what());
    } catch (const std::exception& error) { // HostError, and what we did not think of
        return failed(ExitCode::failure, error.what());
    }
}

int dispatch(std::span<const Command> commands, const std::vector<std::string>& words, Context& context) {
    const ParsedArguments split = parse_arguments(commands, words);
    if (split.asked.contains("help") || split.asked.contains("help-all")) {
        context.out << help_text(commands, split.command, split.asked.contains("help-all"));
        return 0;
    }
    if (split.asked.contains("version")) {
        context.out << version_line();
        return 0;
    }
    const Command* command = split.command;
    if (!command) {
        const auto run = std::ranges::find(commands, "run", &Command::name);
        if (run == commands.end())
            throw tinykvm::UserError(ExitCode::usage, "no command given; see kvmserver --help");
        command = &*run;
    }
    const Invocation invocation{.settings = split.settings,
                                .operands = split.operands,
                                .named = split.command != nullptr,
                                .bare_before = split.bare_before,
                                .storage = split.storage};
    if (const auto events = events_of(*command, invocation.settings, context))
        return run_with_events(*command, invocation, context, *events);
    try {
        return command->action(invocation, context);
    } catch (const tinykvm::UserError& error) {
        const std::string similar = platform::similar_function(error, *command, invocation, context);
        if (similar.empty())
            throw;
        throw tinykvm::UserError(error.code(), error.what() + similar);
    }
}

int fail(Context& context, ExitCode code, std::string message) {
    std::ranges::replace(message, '\n', ' ');
    context.err << "kvmserver: " << message << std::endl;
    return static_cast<int>(code);
}

} // namespace

Context host_context() {
    std::error_code error;
    const auto folder = std::filesystem::current_path(error); // gone: relative paths are then seen from /
    return {.out = std::cout,
            .err = std::cerr,
            .folder = error ? "/" : folder.string(),
            .cpus = std::max(1u, std::thread::hardware_concurrency()),
            .events_fd = STDOUT_FILENO};
}

int run_cli(std::span<const Command> commands, const std::vector<std::string>& words, Context context) {
    context.commands = commands;
    try {
        const int code = dispatch(commands, words, context);
        if (!context.out.flush())
            return fail(context, ExitCode::failure, "stdout cannot be written");
        return code;
    } catch (const tinykvm::UserError& error) {
        return fail(context, error.code(), error.what());
    } catch (const std::exception& error) { // HostError, and what we did not think of
        return fail(context, ExitCode::failure, error.what());
    }
}

} // namespace kvmserver::cli
