// kvmserver version: prints the version.
#include "src/cli/command.hpp"

namespace kvmserver::cli {

std::string version_line() { return "kvmserver " KVMSERVER_VERSION "\n"; }

Command version_command() {
    return {.name = "version",
            .synopsis = "",
            .summary = "print the version",
            .operands = Operands::none,
            .options = {},
            .action = [](const Invocation&, Context& context) {
                context.out << version_line();
                return 0;
            }};
}

} // namespace kvmserver::cli
