// kvmserver help: prints a command's --help, or the manual page.
#include "src/cli/help/help.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/cli/app.hpp"
#include "src/cli/help/nearest.hpp"
#include "src/cli/platform/platform.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

constexpr OptionSpec kMan{.name = "man", .group = "Options", .help = "print the manual page (roff)"};

int help(const Invocation& invocation, Context& context) {
    platform::expect_operands(invocation, "help", "[COMMAND]", 0, 1);
    if (platform::flag(invocation, "man")) {
        if (!invocation.operands.empty())
            throw tinykvm::UserError(tinykvm::ExitCode::usage, "the manual is one page for all commands");
        context.out << manual(context.commands);
        return 0;
    }
    if (invocation.operands.empty()) {
        context.out << overview(context.commands);
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
    context.out << make_app(*command, true)->help();
    return 0;
}

} // namespace

Command help_command() {
    return {.name = "help",
            .synopsis = "[COMMAND]",
            .summary = "say how a command is used; --man: the manual page",
            .operands = Operands::ours,
            .options = {kMan},
            .action = help};
}

} // namespace kvmserver::cli
