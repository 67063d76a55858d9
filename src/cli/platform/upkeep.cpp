// kvmserver gc, kvmserver verify.
#include <fmt/format.h>

#include "src/cli/platform/platform.hpp"
#include "src/store/gc.hpp"
#include "src/store/verify.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

using namespace platform;
using store::Finding;

constexpr OptionSpec kKeep{.name = "keep",
                           .kind = Kind::count,
                           .group = "Options",
                           .value = "N",
                           .help = "of each function the live and the newest N versions (all)"};

int gc(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "gc", "", 0, 0);
    store::GcOptions how{.keep_versions = {}, .dry_run = flag(invocation, "dry-run")};
    if (const auto keep = text(invocation, "keep")) {
        const std::uint64_t count = number(*keep, "--keep");
        if (count > UINT32_MAX)
            throw tinykvm::UserError(tinykvm::ExitCode::usage, "--keep: that is too many");
        how.keep_versions = static_cast<unsigned>(count);
    }
    const auto opened = open_store(invocation, context);
    const store::GcResult result = store::gc(*opened, how);
    if (flag(invocation, "json")) {
        print_json(context, {{"bytes", result.bytes},
                             {"versions", result.versions},
                             {"snapshots", result.snapshots},
                             {"chunks", result.chunks},
                             {"leftovers", result.leftovers},
                             {"removed", result.lines},
                             {"dry_run", how.dry_run}});
        return 0;
    }
    if (!flag(invocation, "quiet"))
        for (const std::string& line : result.lines)
            context.out << line << '\n';
    context.out << (how.dry_run ? "Would free " : "Freed ") << bytes_text(result.bytes) << '\n';
    return 0;
}

const char* name_of(Finding::Kind kind) {
    switch (kind) {
    case Finding::Kind::repaired:
        return "repaired";
    case Finding::Kind::repairable:
        return "repairable";
    case Finding::Kind::broken:
        return "broken";
    case Finding::Kind::note:
        break;
    }
    return "note";
}

int verify(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "verify", "", 0, 0);
    const auto path = store_path(invocation, context);
    if (!store_exists(path))
        throw tinykvm::UserError(tinykvm::ExitCode::not_found,
                                 fmt::format("there is no store in {}", path.string()));
    store::VerifyOptions how;
    how.repair = !flag(invocation, "dry-run");
    const store::VerifyReport report = store::verify(path, how);
    const int code =
        static_cast<int>(report.clean() ? tinykvm::ExitCode::ok : tinykvm::ExitCode::bad_snapshot);
    if (flag(invocation, "json")) {
        auto findings = nlohmann::json::array();
        for (const Finding& finding : report.findings)
            findings.push_back({{"kind", name_of(finding.kind)}, {"line", finding.line}});
        print_json(context, {{"clean", report.clean()},
                             {"findings", findings},
                             {"functions", report.functions},
                             {"versions", report.versions},
                             {"snapshots", report.snapshots},
                             {"chunks", report.chunks},
                             {"bytes", report.bytes}});
        return code;
    }
    for (const Finding& finding : report.findings)
        context.out << name_of(finding.kind) << ": " << finding.line << '\n';
    context.out << fmt::format("{}: functions {}, versions {}, snapshots {}, chunks {}, {}\n",
                               report.clean() ? "Verified" : "Faulty", report.functions, report.versions,
                               report.snapshots, report.chunks, bytes_text(report.bytes));
    return code;
}

} // namespace

Command gc_command() {
    return {.name = "gc",
            .synopsis = "",
            .summary = "remove what nothing names any more",
            .operands = Operands::none,
            .options = options({kKeep, kDryRun}),
            .action = gc};
}

Command verify_command() {
    return {.name = "verify",
            .synopsis = "",
            .summary = "read the whole store back and mend it",
            .operands = Operands::none,
            .options = options({{.name = "dry-run", .group = "Options", .help = "mend nothing"}}),
            .action = verify};
}

} // namespace kvmserver::cli
