// kvmserver list, kvmserver describe: show what is deployed.
#include <fmt/format.h>

#include <algorithm>

#include "src/cli/platform/platform.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

using namespace platform;
using nlohmann::json;

constexpr OptionSpec kSort{.name = "sort",
                           .kind = Kind::text,
                           .group = "Options",
                           .value = "name|created|changed|versions",
                           .fallback = "name",
                           .help = "order, the last and the most first"};

void sort_by(std::vector<json>& functions, const std::string& key) {
    if (key != "name" && key != "created" && key != "changed" && key != "versions")
        throw tinykvm::UserError(tinykvm::ExitCode::usage,
                                 fmt::format("--sort: '{}' is none of name, created, changed, versions", key));
    if (key == "name") // the order of the reply
        return;
    const std::string member = key == "versions" ? key : key + "_ms";
    std::ranges::stable_sort(functions, [&](const json& a, const json& b) { return a.at(member) > b.at(member); });
}

std::string joined(const json& routes) {
    std::string line;
    for (const json& route : routes)
        line += (line.empty() ? "" : " ") + route.get<std::string>();
    return line;
}

// What runs now; empty without a daemon.
json running(Connection& platform) {
    try {
        return platform.call("GET", "/v1/live").at("live");
    } catch (const tinykvm::UserError&) { // no daemon, or the token may not
        return json::array();
    }
}

// "idle" without a live version; with a daemon also the number of requests.
std::string state_of(const json& function, const json& live) {
    std::uint64_t requests = 0;
    bool known = false;
    std::string failing;
    for (const json& one : live) {
        if (one.at("function") != function.at("name"))
            continue;
        known = true;
        requests += one.at("requests").get<std::uint64_t>();
        if (one.at("state") == "failing")
            failing = "failing";
    }
    std::string state = !failing.empty() ? failing : function.at("live").empty() ? "idle" : "ready";
    return known ? fmt::format("{} {} req", state, requests) : state;
}

int list(const char* name, const Invocation& invocation, Context& context) {
    expect_operands(invocation, name, "", 0, 0);
    const std::string key = text(invocation, "sort").value_or("name");
    const auto platform = connect(invocation, context);
    std::vector<json> functions;
    if (!platform->empty())
        functions = platform->call("GET", "/v1/functions").at("functions").get<std::vector<json>>();
    sort_by(functions, key);
    if (flag(invocation, "json")) {
        print_json(context, {{"functions", functions}});
        return 0;
    }
    const json live = functions.empty() ? json::array() : running(*platform);
    std::size_t width = 0;
    for (const json& function : functions)
        width = std::max(width, function.at("name").get_ref<const std::string&>().size());
    for (const json& function : functions)
        context.out << fmt::format("{:{}} {} {} {}\n", function.at("name").get<std::string>(), width,
                                   live_text(function.at("live")), state_of(function, live),
                                   joined(function.at("routes")));
    if (functions.empty() && !flag(invocation, "quiet"))
        context.err << "no functions yet: kvmserver deploy\n";
    return 0;
}

int describe(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "describe", "NAME", 1, 1);
    const auto platform = connect(invocation, context);
    const json function = platform->call("GET", target_of({"functions", invocation.operands.front()}));
    if (flag(invocation, "json")) {
        print_json(context, function);
        return 0;
    }
    const auto line = [&](const char* name, const std::string& value) {
        context.out << fmt::format("{:<10} {}\n", name, value);
    };
    line("name", function.at("name"));
    for (const json& route : function.at("routes"))
        line("route", platform->serves()
                          ? fmt::format("{} {}", route.get<std::string>(), platform->public_url(route).text())
                          : route.get<std::string>());
    for (const json& version : function.at("live_versions"))
        line("live",
             fmt::format("v{} {}% {} {}", version.at("version").get<std::uint64_t>(),
                         version.at("percent").get<unsigned>(), bytes_text(version.at("bytes").get<std::uint64_t>()),
                         version.at("snapshot").get<std::string>()));
    line("versions", fmt::to_string(function.at("versions").get<std::uint64_t>()));
    for (const auto& [name, value] : function.at("env").items())
        line("env", name + "=" + value.get<std::string>());
    for (const json& name : function.at("secrets"))
        line("secret", name);
    line("created", function.at("created"));
    line("changed", function.at("changed"));
    context.out << fmt::format("{} {} {}\n", function.at("name").get<std::string>(), live_text(function.at("live")),
                               state_of(function, running(*platform)));
    return 0;
}

} // namespace

Command list_command(const char* name) {
    return {
        .name = name,
        .synopsis = "",
        .summary = std::string_view(name) == "ls" ? "the same as list" : "list the functions",
        .operands = Operands::none,
        .options = options({kSort}),
        .action = [name](const Invocation& invocation, Context& context) { return list(name, invocation, context); }};
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
