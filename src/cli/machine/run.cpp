// kvmserver run: boots a program and serves it, or runs it to its end.
#include "src/cli/machine/machine_command.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

int run(const MachineAction& action, const Invocation& invocation, Context& context) {
    MachineJob job = prepare(kRun, invocation, context);
    if (job.done)
        return 0;
    if (job.program.empty())
        throw tinykvm::UserError(
            tinykvm::ExitCode::usage,
            invocation.named ? "run needs a PROGRAM, or one in a [run] section of kvmserver.toml; see kvmserver run "
                               "--help"
                             : "no command, and no program in a [run] section of kvmserver.toml; see kvmserver --help");
    if (job.options.no_listen && (job.options.ephemeral || job.options.threads > 1))
        throw tinykvm::UserError(tinykvm::ExitCode::usage,
                                 "--no-listen excludes -e, --http and -t above 1, which serve connections");
    if (!job.options.gdb.empty() && (job.options.ephemeral || job.options.threads > 1))
        throw tinykvm::UserError(tinykvm::ExitCode::usage,
                                 "--gdb excludes -e, --http and -t above 1: it debugs one machine, which keeps its "
                                 "state; to debug a request: kvmserver debug");
    return action(job.options);
}

} // namespace

Command run_command(const MachineAction& action) {
    return {
        .name = "run",
        .synopsis = "[PROGRAM [ARGS...]]",
        .summary = "boot a program and serve it",
        .operands = Operands::guest,
        .options = options_of(kRun),
        .action = [action](const Invocation& invocation, Context& context) { return run(action, invocation, context); },
        .storage = true};
}

} // namespace kvmserver::cli
