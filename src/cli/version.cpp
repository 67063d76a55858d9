// kvmserver version: prints the version and the commit.
#include "src/cli/version.hpp"

#include <version_values.hpp>

#include "src/cli/command.hpp"

namespace kvmserver::cli {

std::string version_number() { return KVMSERVER_VERSION; }

std::string version_date() { return KVMSERVER_DATE; }

std::string version_line() {
    const std::string commit = KVMSERVER_COMMIT;
    return "kvmserver " KVMSERVER_VERSION + (commit.empty() ? "" : " (" + commit + ")") + "\n";
}

Command version_command() {
    return {.name = "version",
            .synopsis = "",
            .summary = "print the version and the commit that it was built from",
            .operands = Operands::none,
            .options = {},
            .action = [](const Invocation&, Context& context) {
                context.out << version_line();
                return 0;
            }};
}

} // namespace kvmserver::cli
