// kvmserver push, kvmserver pull: move snapshots into and out of the store, without a function.
#include <fmt/format.h>

#include "src/cli/events/json_events.hpp"
#include "src/cli/paths.hpp"
#include "src/cli/platform/platform.hpp"
#include "src/cli/platform/source.hpp"
#include "src/snapshot/output_file.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

using namespace platform;

constexpr OptionSpec kOutput{.name = "output",
                             .letter = 'o',
                             .kind = Kind::text,
                             .group = "Options",
                             .value = "FILE",
                             .help = "the file to write (required)"};

int push_snapshot(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "push", "FILE", 1, 1);
    const Source source = find_source(invocation.operands.front(), context);
    const auto platform = connect(invocation, context);
    const SnapshotFile file(source, talk(invocation), context);
    if (context.events)
        context.events->phase("upload");
    const Pushed pushed = platform->push(file.digested());
    if (flag(invocation, "json"))
        print_result(context,
                     {{"snapshot", pushed.snapshot}, {"bytes", pushed.bytes}, {"new_bytes", pushed.new_bytes}});
    else
        context.out << "Pushed " << pushed.snapshot << '\n';
    return 0;
}

int pull_snapshot(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "pull", "REF -o FILE", 1, 1);
    const auto output = text(invocation, "output");
    if (!output)
        throw tinykvm::UserError(tinykvm::ExitCode::usage, "pull needs -o FILE; see kvmserver pull --help");
    const auto platform = connect(invocation, context);
    OutputFile file(absolute_path(context.folder, *output));
    if (context.events)
        context.events->phase("download");
    const Pulled pulled = platform->pull(invocation.operands.front(), file.fd());
    file.publish();
    if (flag(invocation, "json"))
        print_result(context, {{"snapshot", pulled.snapshot}, {"bytes", pulled.bytes}, {"file", *output}});
    else
        context.out << fmt::format("Pulled {} {} {}\n", *output, bytes_text(pulled.bytes), pulled.snapshot);
    return 0;
}

} // namespace

Command push_command() {
    return {.name = "push",
            .synopsis = "FILE",
            .summary = "put a snapshot into the store",
            .operands = Operands::ours,
            .options = options_with_events({kVerbose}),
            .action = push_snapshot,
            .has_events = true};
}

Command pull_command() {
    return {.name = "pull",
            .synopsis = "REF -o FILE",
            .summary = "get a snapshot: sha256:..., NAME, NAME@N",
            .operands = Operands::ours,
            .options = options_with_events({kOutput}),
            .action = pull_snapshot,
            .words = {Words::functions},
            .has_events = true};
}

} // namespace kvmserver::cli
