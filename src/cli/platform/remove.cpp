// kvmserver delete: a function, or one of its versions.
#include <fmt/format.h>

#include "src/cli/platform/platform.hpp"

namespace kvmserver::cli {
namespace {

using namespace platform;

constexpr OptionSpec kVersion{.name = "version",
                              .kind = Kind::text,
                              .group = "Options",
                              .value = "N",
                              .help = "only this version, which must not be live"};

int remove(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "delete", "NAME", 1, 1);
    const std::string& name = invocation.operands.front();
    std::optional<std::uint64_t> version;
    if (const auto given = text(invocation, "version"))
        version = version_number(*given);
    const auto opened = open_store(invocation, context);
    store::Functions functions(*opened);
    if (version)
        functions.remove_version(name, *version);
    else
        functions.remove(name);
    if (flag(invocation, "json")) {
        nlohmann::json object{{"deleted", name}};
        if (version)
            object["version"] = *version;
        print_json(context, object);
    } else {
        context.out << "Deleted " << name << (version ? fmt::format(" v{}", *version) : "") << '\n';
    }
    return 0;
}

} // namespace

Command delete_command() {
    return {.name = "delete",
            .synopsis = "NAME",
            .summary = "delete a function or a version of it",
            .operands = Operands::ours,
            .options = options({kVersion}),
            .action = remove};
}

} // namespace kvmserver::cli
