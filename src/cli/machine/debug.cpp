// kvmserver debug: restores a snapshot and lets gdb debug it from the arrival of a request on.
#include <algorithm>
#include <array>
#include <iterator>

#include "src/cli/machine/machine_command.hpp"
#include "src/cli/machine/snapshot_file.hpp"
#include "src/cli/platform/platform.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

// Options of `snaprun` that are about many machines or their reset. Here is one machine, which keeps its state.
constexpr std::array<std::string_view, 13> kNotHere{"ephemeral",
                                                    "server-first",
                                                    "threads",
                                                    "reset",
                                                    "http",
                                                    "stats",
                                                    "check-reset",
                                                    "code-as-is",
                                                    "hugepages",
                                                    "limit-request-memory",
                                                    "transparent-hugepages",
                                                    "hugepage-arena-size",
                                                    "hugepage-requests-arena"};

std::vector<OptionSpec> debug_options() {
    std::vector<OptionSpec> options{platform::kStore};
    std::ranges::copy_if(machine_options(), std::back_inserter(options), [](const OptionSpec& spec) {
        const bool of_snaprun = (spec.offered & kSnaprun) && !(spec.without_effect & kSnaprun) &&
                                std::ranges::find(kNotHere, spec.name) == kNotHere.end();
        return of_snaprun || (spec.offered & kDebug);
    });
    return options;
}

int debug(const MachineAction& action, const Invocation& invocation, Context& context) {
    if (invocation.operands.size() != 1)
        throw tinykvm::UserError(tinykvm::ExitCode::usage,
                                 "debug takes one snapshot FILE or NAME; see kvmserver debug --help");
    const FoundSnapshot file = find_snapshot_file(invocation, context);
    Invocation own = invocation;
    own.settings.erase("store");
    MachineJob job = prepare(kSnaprun, own, context);
    if (job.done)
        return 0;
    job.options.snapshot_file = file.path;
    if (!own.settings.contains("env"))
        job.options.env.clear();
    if (job.options.gdb.empty())
        job.options.gdb = "127.0.0.1:0";
    return action(job.options);
}

} // namespace

Command debug_command(const MachineAction& action) {
    return {.name = "debug",
            .synopsis = "FILE or NAME",
            .summary = "let gdb debug a snapshot from the arrival of a request on",
            .operands = Operands::ours,
            .options = debug_options(),
            .action = [action](const Invocation& invocation,
                               Context& context) { return debug(action, invocation, context); },
            .words = {Words::functions}};
}

} // namespace kvmserver::cli
