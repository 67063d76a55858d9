// kvmserver delete: deletes a function or one of its versions.
#include <fmt/format.h>

#include <algorithm>

#include "src/cli/platform/platform.hpp"
#include "src/ops/reference.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

using namespace platform;

constexpr OptionSpec kVersion{.name = "version",
                              .kind = Kind::text,
                              .group = "Options",
                              .value = "N",
                              .help = "only this version, which must not be live"};

// Before somebody is asked whether to delete it.
void require(Connection& platform, const std::string& name, std::optional<std::uint64_t> version) {
    nlohmann::json versions;
    try {
        versions = platform.call("GET", target_of({"functions", name, "versions"})).at("versions");
    } catch (const tinykvm::UserError& error) {
        if (error.code() == tinykvm::ExitCode::not_permitted)
            return; // a token that may delete need not be one that may read
        throw;
    }
    if (version &&
        std::ranges::none_of(versions, [&](const nlohmann::json& one) { return one.at("version") == *version; }))
        throw tinykvm::UserError(
            tinykvm::ExitCode::not_found,
            fmt::format("{} has no v{}: `kvmserver versions {}` lists them", name, *version, name));
}

int remove(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "delete", "NAME", 1, 1);
    const std::string& name = invocation.operands.front();
    std::optional<std::uint64_t> version;
    if (const auto given = text(invocation, "version"))
        version = ops::version_number(*given);
    const auto platform = connect(invocation, context);
    if (!flag(invocation, "yes"))
        require(*platform, name, version);
    const std::string what = name + (version ? fmt::format(" v{}", *version) : "");
    if (!agreed(invocation, context,
                fmt::format("Delete {} from {}{}?", what, platform->shown(),
                            version ? "" : ", with its versions, values and logs")))
        throw tinykvm::UserError(tinykvm::ExitCode::failure, "nothing was deleted");
    const nlohmann::json done =
        platform->call("DELETE", version ? target_of({"functions", name, "versions", std::to_string(*version)})
                                         : target_of({"functions", name}));
    if (flag(invocation, "json"))
        print_json(context, done);
    else
        context.out << "Deleted " << what << '\n';
    return 0;
}

} // namespace

Command delete_command() {
    return {.name = "delete",
            .synopsis = "NAME",
            .summary = "delete a function or a version of it",
            .operands = Operands::ours,
            .options = options({kVersion}),
            .action = remove,
            .words = {Words::functions}};
}

} // namespace kvmserver::cli
