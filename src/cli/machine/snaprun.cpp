// kvmserver snaprun: restores a snapshot and serves it.
#include "src/cli/machine/machine_command.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

int snaprun(const MachineAction& action, const Invocation& invocation, Context& context) {
    MachineJob job = prepare(kSnaprun, invocation, context);
    if (job.done)
        return 0;
    const auto usage = [](const std::string& what) { throw tinykvm::UserError(tinykvm::ExitCode::usage, what); };
    if (job.program.empty())
        usage("snaprun needs a snapshot FILE; see kvmserver snaprun --help");
    if (!job.args.empty())
        usage("snaprun takes one FILE, not also '" + job.args.front() +
              "'; a snapshot holds its program's arguments already");
    job.options.snapshot_file = job.program;
    if (!invocation.settings.contains("env")) // the file's variables are for the boot
        job.options.env.clear();
    return action(job.options);
}

} // namespace

Command snaprun_command(const MachineAction& action) {
    return {.name = "snaprun",
            .synopsis = "FILE",
            .summary = "serve a snapshot",
            .operands = Operands::ours,
            .options = options_of(kSnaprun),
            .action = [action](const Invocation& invocation,
                               Context& context) { return snaprun(action, invocation, context); },
            .storage = true};
}

} // namespace kvmserver::cli
