// kvmserver inspect: shows the content of a snapshot, from a file or the store, and whether it runs here.
#include "src/snapshot/inspect.hpp"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "src/cli/command.hpp"
#include "src/cli/doctor/host_cpu.hpp"
#include "src/cli/machine/snapshot_file.hpp"
#include "src/cli/platform/platform.hpp"
#include "src/snapshot/reader.hpp"
#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

using tinykvm::ExitCode;
using tinykvm::UserError;

constexpr OptionSpec kInspectOptions[] = {
    {.name = "verify", .group = "Options", .help = "also check the content of every chunk"},
    platform::kStore,
    platform::kJson,
};

// Why this build of kvmserver cannot run the snapshot on any CPU; "" if it can.
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
    const bool verify = platform::flag(invocation, "verify");
    const bool as_json = platform::flag(invocation, "json");
    const FoundSnapshot inspected = find_snapshot_file(invocation, context);
    const SnapshotReader reader = SnapshotReader::open(inspected.path);
    if (verify)
        reader.verify();

    std::optional<tinykvm::CpuState> host;
    std::string no_host;
    try {
        host = host_cpu();
    } catch (const UserError& error) { // a snapshot can be inspected on any host
        no_host = error.what();
    }
    nlohmann::json facts = describe_json(reader, host);
    if (const std::string problem = abi_problem(reader); !problem.empty()) {
        facts["compatible"] = false;
        facts["incompatible_because"] = problem;
    }
    if (inspected.copy)
        facts["file"] = inspected.shown;
    const bool known = facts.contains("compatible");
    const bool compatible = known && facts["compatible"].get<bool>();

    if (as_json) {
        if (verify)
            facts["verified"] = true;
        context.out << facts.dump(2) << '\n';
    } else {
        std::string text = describe(reader);
        if (const auto at = text.find(inspected.path); inspected.copy && at != text.npos)
            text.replace(at, inspected.path.size(), inspected.shown);
        context.out << text;
        if (verify)
            context.out << fmt::format("{:<12} {}\n", "verified", "every chunk");
        context.out << (!known ? fmt::format("compatible: unknown: {}\n", no_host)
                        : compatible
                            ? std::string("compatible: yes\n")
                            : fmt::format("compatible: no: {}\n", facts["incompatible_because"].get<std::string>()));
    }
    return static_cast<int>(known && !compatible ? ExitCode::bad_snapshot : ExitCode::ok);
}

} // namespace

Command inspect_command() {
    return {.name = "inspect",
            .synopsis = "FILE or NAME",
            .summary = "tell what a snapshot holds and whether it runs here",
            .operands = Operands::ours,
            .options = {std::begin(kInspectOptions), std::end(kInspectOptions)},
            .action = inspect,
            .words = {Words::functions}};
}

} // namespace kvmserver::cli
