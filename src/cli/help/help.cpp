// kvmserver help: prints a command's --help, or its manual page.
#include "src/cli/help/help.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "src/cli/app.hpp"
#include "src/cli/help/nearest.hpp"
#include "src/cli/platform/platform.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

constexpr OptionSpec kMan{.name = "man", .group = "Options", .help = "print the manual page (roff)"};
constexpr OptionSpec kManOutput{.name = "output",
                                .letter = 'o',
                                .kind = Kind::text,
                                .group = "Options",
                                .value = "DIR",
                                .help = "with --man: write the pages of all commands into this folder"};

void write_page(const std::filesystem::path& file, const std::string& page) {
    std::ofstream out(file);
    if (!(out << page).flush())
        tinykvm::throw_errno("write " + file.string());
}

void write_pages(const std::filesystem::path& folder, std::span<const Command> commands) {
    write_page(folder / "kvmserver.1", manual(commands));
    for (const Command& command : commands)
        write_page(folder / fmt::format("kvmserver-{}.1", command.name), manual_of(command));
}

int help(const Invocation& invocation, Context& context) {
    platform::expect_operands(invocation, "help", "[COMMAND]", 0, 1);
    const bool man = platform::flag(invocation, "man");
    if (const auto folder = platform::text(invocation, "output")) {
        if (!man || !invocation.operands.empty())
            throw tinykvm::UserError(tinykvm::ExitCode::usage, "-o needs --man, and no COMMAND");
        write_pages(*folder, context.commands);
        return 0;
    }
    if (invocation.operands.empty()) {
        context.out << (man ? manual(context.commands) : overview(context.commands));
        return 0;
    }
    const std::string& name = invocation.operands.front();
    const auto command = std::ranges::find(context.commands, name, &Command::name);
    if (command == context.commands.end()) {
        std::vector<std::string> names;
        for (const Command& each : context.commands)
            names.push_back(each.name);
        throw tinykvm::UserError(tinykvm::ExitCode::usage,
                                 fmt::format("there is no command '{}'{}", name, did_you_mean(name, names)));
    }
    context.out << (man ? manual_of(*command) : make_app(*command, true)->help());
    return 0;
}

} // namespace

Command help_command() {
    return {.name = "help",
            .synopsis = "[COMMAND]",
            .summary = "say how a command is used; --man: the manual page",
            .operands = Operands::ours,
            .options = {kMan, kManOutput},
            .action = help};
}

} // namespace kvmserver::cli
