// kvmserver push, kvmserver pull: snapshots into the store and out of it, without a function.
#include <fmt/format.h>

#include "src/cli/paths.hpp"
#include "src/cli/platform/platform.hpp"
#include "src/cli/platform/reference.hpp"
#include "src/cli/platform/source.hpp"
#include "src/snapshot/output_file.hpp"
#include "src/store/stored_snapshot.hpp"
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

int push(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "push", "FILE", 1, 1);
    const Source source = find_source(invocation.operands.front(), context);
    const SnapshotFile file(source, flag(invocation, "quiet"), context);
    const auto opened = open_store(invocation, context, Absent::make);
    const Imported imported = import_snapshot(*opened, file.path());
    const std::string digest = "sha256:" + imported.hold.digest().hex();
    if (flag(invocation, "json"))
        print_json(context,
                   {{"snapshot", digest}, {"bytes", imported.bytes}, {"new_bytes", imported.new_bytes}});
    else
        context.out << "Pushed " << digest << '\n';
    return 0;
}

int pull(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "pull", "REF -o FILE", 1, 1);
    const auto output = text(invocation, "output");
    if (!output)
        throw tinykvm::UserError(tinykvm::ExitCode::usage, "pull needs -o FILE; see kvmserver pull --help");
    const auto opened = open_store(invocation, context);
    const store::StoredSnapshot snapshot(*opened, find_snapshot(*opened, invocation.operands.front()));
    OutputFile file(absolute_path(context.folder, *output));
    snapshot.export_to(file.fd());
    file.publish();
    const std::string digest = "sha256:" + snapshot.digest().hex();
    if (flag(invocation, "json"))
        print_json(context, {{"snapshot", digest}, {"bytes", snapshot.size()}, {"file", *output}});
    else
        context.out << fmt::format("Pulled {} {} {}\n", *output, bytes_text(snapshot.size()), digest);
    return 0;
}

} // namespace

Command push_command() {
    return {.name = "push",
            .synopsis = "FILE",
            .summary = "put a snapshot into the store",
            .operands = Operands::ours,
            .options = options(),
            .action = push};
}

Command pull_command() {
    return {.name = "pull",
            .synopsis = "REF -o FILE",
            .summary = "get a snapshot: sha256:..., NAME, NAME@N",
            .operands = Operands::ours,
            .options = options({kOutput}),
            .action = pull};
}

} // namespace kvmserver::cli
