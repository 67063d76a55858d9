// kvmserver snapshot: boots a program until it waits for its first connection and saves the machine.
#include "src/cli/machine/machine_command.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

int snapshot(const MachineAction& action, const Invocation& invocation, Context& context) {
    MachineJob job = prepare(kSnapshot, invocation, context);
    if (job.done)
        return 0;
    const auto usage = [](const char* what) { throw tinykvm::UserError(tinykvm::ExitCode::usage, what); };
    if (job.options.snapshot_file.empty())
        usage("snapshot needs -o FILE; see kvmserver snapshot --help");
    if (job.program.empty())
        usage("snapshot needs a PROGRAM, or one in a [run] section of kvmserver.toml; see kvmserver snapshot --help");
    job.options.program = job.program;
    job.options.args = job.args;
    return action(job.options);
}

} // namespace

Command snapshot_command(const MachineAction& action) {
    return {.name = "snapshot",
            .synopsis = "-o FILE [PROGRAM [ARGS...]]",
            .summary = "save a program that is ready to serve",
            .operands = Operands::guest,
            .options = options_of(kSnapshot),
            .action = [action](const Invocation& invocation, Context& context) {
                return snapshot(action, invocation, context);
            }};
}

} // namespace kvmserver::cli
