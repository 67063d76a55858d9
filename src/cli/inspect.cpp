// kvmserver inspect: what a snapshot holds, and whether it runs here.
#include "src/snapshot/inspect.hpp"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "src/cli/command.hpp"
#include "src/cli/host_cpu.hpp"
#include "src/snapshot/reader.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/guest/abi.hpp"

namespace kvmserver::cli {
namespace {

using tinykvm::ExitCode;
using tinykvm::UserError;

constexpr OptionSpec kInspectOptions[] = {
    {.name = "verify", .group = "Options", .help = "also check the content of every chunk"},
    {.name = "json", .group = "Options", .help = "print one JSON object"},
};

bool set(const Invocation& invocation, std::string_view flag) {
    const auto at = invocation.settings.find(flag);
    if (at == invocation.settings.end())
        return false;
    if (const std::string& value = at->second.values.front(); value != "true" && value != "false")
        throw UserError(ExitCode::usage, fmt::format("--{}: '{}' is neither true nor false", flag, value));
    return is_set(invocation.settings, flag);
}

// Why the snapshot cannot run on any CPU of this build of kvmserver; "" when it can.
std::string abi_problem(const SnapshotReader& reader) {
    try {
        require_guest_abi(reader, tinykvm::abi::kVersion);
        return "";
    } catch (const UserError& error) {
        return error.what();
    }
}

int inspect(const Invocation& invocation, Context& context) {
    if (invocation.operands.size() != 1)
        throw UserError(ExitCode::usage, "inspect takes one snapshot FILE; see kvmserver inspect --help");
    const bool verify = set(invocation, "verify");
    const bool as_json = set(invocation, "json");
    const SnapshotReader reader = SnapshotReader::open(invocation.operands.front());
    if (verify)
        reader.verify();

    std::optional<tinykvm::CpuState> host;
    std::string no_host;
    try {
        host = host_cpu();
    } catch (const UserError& error) { // a snapshot can be looked at anywhere
        no_host = error.what();
    }
    nlohmann::json facts = describe_json(reader, host);
    if (const std::string problem = abi_problem(reader); !problem.empty()) {
        facts["compatible"] = false;
        facts["incompatible_because"] = problem;
    }
    const bool known = facts.contains("compatible");
    const bool compatible = known && facts["compatible"].get<bool>();

    if (as_json) {
        if (verify)
            facts["verified"] = true;
        context.out << facts.dump(2) << '\n';
    } else {
        context.out << describe(reader);
        if (verify)
            context.out << fmt::format("{:<12} {}\n", "verified", "every chunk");
        context.out << (!known       ? fmt::format("compatible: unknown: {}\n", no_host)
                        : compatible ? std::string("compatible: yes\n")
                                     : fmt::format("compatible: no: {}\n",
                                                   facts["incompatible_because"].get<std::string>()));
    }
    return static_cast<int>(known && !compatible ? ExitCode::bad_snapshot : ExitCode::ok);
}

} // namespace

Command inspect_command() {
    return {.name = "inspect",
            .synopsis = "FILE",
            .summary = "tell what a snapshot holds and whether it runs here",
            .operands = Operands::ours,
            .options = {std::begin(kInspectOptions), std::end(kInspectOptions)},
            .action = inspect};
}

} // namespace kvmserver::cli
