// kvmserver snapshot: boots a program until it waits for its first connection and saves the machine.
#include <sys/socket.h>

#include <cerrno>
#include <optional>
#include <string>

#include "src/cli/events/json_events.hpp"
#include "src/cli/machine/machine_command.hpp"
#include "src/cli/options/options_from.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

std::optional<int> parent_socket(const Invocation& invocation) {
    const auto given = invocation.settings.find("parent");
    if (given == invocation.settings.end())
        return std::nullopt;
    return descriptor_of(given->second, "parent");
}

// The parent is told that the early snapshot is complete. Once it is live, the parent asks for the warmed-up one, which
// would take CPU time from that before.
void agree_with_parent(int socket, JsonEvents* events, EarlySnapshot& early) {
    early.written = [socket, events] {
        if (events)
            events->end_phase();
        if (::send(socket, "", 1, MSG_NOSIGNAL) != 1)
            tinykvm::throw_errno("tell the parent of the early snapshot");
        char any;
        ssize_t got;
        do
            got = ::recv(socket, &any, 1, 0);
        while (got < 0 && errno == EINTR);
        if (got != 1)
            throw tinykvm::UserError(tinykvm::ExitCode::failure, "the warmed-up snapshot is not wanted any more");
    };
}

int snapshot(const MachineAction& action, const Invocation& invocation, Context& context) {
    MachineJob job = prepare(kSnapshot, invocation, context);
    if (job.done)
        return 0;
    const auto usage = [](const char* what) { throw tinykvm::UserError(tinykvm::ExitCode::usage, what); };
    if (job.options.snapshot_file.empty())
        usage("snapshot needs -o FILE; see kvmserver snapshot --help");
    if (job.program.empty())
        usage("snapshot needs a PROGRAM, or one in a [run] section of kvmserver.toml; see kvmserver snapshot --help");
    const std::optional<int> parent = parent_socket(invocation);
    if (parent.has_value() == job.options.early.file.empty())
        usage("--early and --parent go together: they are for deploy, which gives both");
    if (parent)
        agree_with_parent(*parent, context.events, job.options.early);
    return action(job.options);
}

} // namespace

Command snapshot_command(const MachineAction& action) {
    return {.name = "snapshot",
            .synopsis = "-o FILE [PROGRAM [ARGS...]]",
            .summary = "save a program that is ready to serve",
            .operands = Operands::guest,
            .options = options_of(kSnapshot),
            .action = [action](const Invocation& invocation,
                               Context& context) { return snapshot(action, invocation, context); },
            .has_events = true,
            .storage = true};
}

} // namespace kvmserver::cli
