// kvmserver gc, kvmserver verify: clean up and check the store.
#include <fmt/format.h>

#include "src/cli/platform/platform.hpp"
#include "src/ops/reference.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

using namespace platform;
using nlohmann::json;

constexpr OptionSpec kKeep{.name = "keep",
                           .kind = Kind::count,
                           .group = "Options",
                           .value = "N",
                           .help =
                               "of each function the live and the newest N versions (as its manifest says, else all)"};

int gc(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "gc", "", 0, 0);
    std::string query = flag(invocation, "dry-run") ? "?dry_run=1" : "?dry_run=0";
    if (const auto keep = text(invocation, "keep")) {
        const std::uint64_t count = ops::whole_number(*keep, "--keep");
        if (count > UINT32_MAX)
            throw tinykvm::UserError(tinykvm::ExitCode::usage, "--keep: that is too many");
        query += fmt::format("&keep={}", count);
    }
    const json result = connect(invocation, context)->call("POST", "/v1/gc" + query);
    if (flag(invocation, "json")) {
        print_json(context, result);
        return 0;
    }
    if (!flag(invocation, "quiet"))
        for (const json& line : result.at("removed"))
            context.out << line.get<std::string>() << '\n';
    context.out << (result.at("dry_run").get<bool>() ? "Would free " : "Freed ")
                << bytes_text(result.at("bytes").get<std::uint64_t>());
    if (result.contains("objects")) // of the bucket, whose sizes are not asked for
        context.out << fmt::format("; objects in the bucket: {}", result.at("objects").get<std::uint64_t>());
    context.out << '\n';
    return 0;
}

int verify(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "verify", "", 0, 0);
    const auto path = store_path(invocation, context);
    if (!text(invocation, "remote") && !store_exists(path))
        throw tinykvm::UserError(tinykvm::ExitCode::not_found, fmt::format("there is no store in {}", path.string()));
    const json report = connect(invocation, context)
                            ->call("POST", fmt::format("/v1/verify?dry_run={}{}", int{flag(invocation, "dry-run")},
                                                       flag(invocation, "cluster") ? "&cluster=1" : ""));
    const bool clean = report.at("clean").get<bool>();
    const int code = static_cast<int>(clean ? tinykvm::ExitCode::ok : tinykvm::ExitCode::bad_snapshot);
    if (flag(invocation, "json")) {
        print_json(context, report);
        return code;
    }
    for (const json& finding : report.at("findings"))
        context.out << finding.at("kind").get<std::string>() << ": " << finding.at("line").get<std::string>() << '\n';
    const auto count = [&](const char* name) { return report.at(name).get<std::uint64_t>(); };
    context.out << fmt::format("{}: functions {}, versions {}, snapshots {}, chunks {}, {}\n",
                               clean ? "Verified" : "Faulty", count("functions"), count("versions"), count("snapshots"),
                               count("chunks"), bytes_text(count("bytes")));
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
            .options = options({{.name = "dry-run", .group = "Options", .help = "mend nothing"},
                                {.name = "cluster",
                                 .group = "Options",
                                 .help = "check the cluster's index and bucket instead; send missing chunks again"}}),
            .action = verify};
}

} // namespace kvmserver::cli
