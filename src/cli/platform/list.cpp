// kvmserver list, kvmserver describe: what is deployed.
#include <fmt/format.h>

#include <algorithm>

#include "src/cli/platform/platform.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

using namespace platform;
using store::FunctionSummary;

constexpr OptionSpec kSort{.name = "sort",
                           .kind = Kind::text,
                           .group = "Options",
                           .value = "name|created|changed|versions",
                           .fallback = "name",
                           .help = "order, the last and the most first"};

void sort_by(std::vector<FunctionSummary>& functions, const std::string& key) {
    const auto most_first = [&](auto member) {
        std::ranges::stable_sort(functions, std::greater<>{}, member);
    };
    if (key == "created")
        most_first(&FunctionSummary::created);
    else if (key == "changed")
        most_first(&FunctionSummary::changed);
    else if (key == "versions")
        most_first(&FunctionSummary::versions);
    else if (key != "name") // they come by name
        throw tinykvm::UserError(
            tinykvm::ExitCode::usage,
            fmt::format("--sort: '{}' is none of name, created, changed, versions", key));
}

std::string routes_text(const std::vector<store::Route>& routes) {
    std::string line;
    for (const store::Route& route : routes)
        line += (line.empty() ? "" : " ") + route.text();
    return line;
}

nlohmann::json summary_json(const FunctionSummary& function) {
    return {{"name", function.name},
            {"live", live_json(function.live)},
            {"versions", function.versions},
            {"routes", routes_json(function.routes)},
            {"created", time_text(function.created)},
            {"changed", time_text(function.changed)},
            {"etag", function.etag}};
}

int list(const char* name, const Invocation& invocation, Context& context) {
    expect_operands(invocation, name, "", 0, 0);
    std::vector<FunctionSummary> functions;
    if (store_exists(store_path(invocation, context)))
        functions = store::Functions(*open_store(invocation, context)).list();
    sort_by(functions, text(invocation, "sort").value_or("name"));
    if (flag(invocation, "json")) {
        auto all = nlohmann::json::array();
        for (const FunctionSummary& function : functions)
            all.push_back(summary_json(function));
        print_json(context, {{"functions", all}});
        return 0;
    }
    std::size_t width = 0;
    for (const FunctionSummary& function : functions)
        width = std::max(width, function.name.size());
    for (const FunctionSummary& function : functions)
        context.out << fmt::format("{:{}} {} {} {}\n", function.name, width, live_text(function.live),
                                   function.live.empty() ? "idle" : "ready", routes_text(function.routes));
    if (functions.empty() && !flag(invocation, "quiet"))
        context.err << "no functions yet: kvmserver deploy\n";
    return 0;
}

int describe(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "describe", "NAME", 1, 1);
    const auto opened = open_store(invocation, context);
    const store::FunctionDetails function = store::Functions(*opened).describe(invocation.operands.front());
    if (flag(invocation, "json")) {
        nlohmann::json object = summary_json(function);
        object["env"] = function.env;
        object["secrets"] = function.secrets;
        object["live_versions"] = nlohmann::json::array();
        for (const store::VersionInfo& version : function.live_versions) {
            object["live_versions"].push_back(version_json(version));
            object["live_versions"].back()["manifest"] = nlohmann::json::parse(version.manifest);
        }
        print_json(context, object);
        return 0;
    }
    const auto line = [&](const char* name, const std::string& value) {
        context.out << fmt::format("{:<10} {}\n", name, value);
    };
    line("name", function.name);
    for (const store::Route& route : function.routes)
        line("route", fmt::format("{} {}", route.text(), url_of(route)));
    for (const store::VersionInfo& version : function.live_versions)
        line("live", fmt::format("v{} {}% {} sha256:{}", version.number, version.percent,
                                 bytes_text(version.snapshot_bytes), version.snapshot.hex()));
    line("versions", fmt::to_string(function.versions));
    for (const auto& [name, value] : function.env)
        line("env", name + "=" + value);
    for (const std::string& name : function.secrets)
        line("secret", name);
    line("created", time_text(function.created));
    line("changed", time_text(function.changed));
    context.out << fmt::format("{} {} {}\n", function.name, live_text(function.live),
                               function.live.empty() ? "idle" : "ready");
    return 0;
}

} // namespace

Command list_command(const char* name) {
    return {.name = name,
            .synopsis = "",
            .summary = std::string_view(name) == "ls" ? "the same as list" : "list the functions",
            .operands = Operands::none,
            .options = options({kSort}),
            .action = [name](const Invocation& invocation, Context& context) {
                return list(name, invocation, context);
            }};
}

Command describe_command() {
    return {.name = "describe",
            .synopsis = "NAME",
            .summary = "tell all about a function",
            .operands = Operands::ours,
            .options = options(),
            .action = describe};
}

} // namespace kvmserver::cli
