// kvmserver list, kvmserver describe: show what is deployed.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "src/cli/platform/platform.hpp"
#include "src/cli/platform/table.hpp"
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

// What runs now; empty without a daemon.
json running(Connection& platform) {
    try {
        return platform.call("GET", "/v1/live").at("live");
    } catch (const tinykvm::UserError&) { // no daemon, or the token may not
        return json::array();
    }
}

struct State {
    std::string word;                      // failing, ready, or idle without a live version
    std::optional<std::uint64_t> requests; // known by a daemon
};

State state_of(const json& function, const json& live) {
    State state{.word = function.at("live").empty() ? "idle" : "ready", .requests = {}};
    for (const json& one : live) {
        if (one.at("function") != function.at("name"))
            continue;
        state.requests = state.requests.value_or(0) + one.at("requests").get<std::uint64_t>();
        if (one.at("state") == "failing")
            state.word = "failing";
    }
    if (function.value("keeps_state", false)) // absent: an older daemon
        state.word += ", keeps state";
    return state;
}

// The first route as a URL, and how many more there are.
std::string where(const json& routes, Connection& platform) {
    if (routes.empty())
        return {};
    const std::string first = routes.front();
    const std::string more = routes.size() > 1 ? fmt::format(" and {} more", routes.size() - 1) : "";
    return (platform.serves() ? platform.public_url(first).text() : first) + more;
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
    Table table({"NAME", "LIVE", "STATE", "REQUESTS", "CHANGED", platform->serves() ? "URL" : "ROUTE"});
    for (const json& function : functions) {
        const State state = state_of(function, live);
        table.add({function.at("name"), live_text(function.at("live")), state.word,
                   state.requests ? fmt::to_string(*state.requests) : "",
                   ago(function.at("changed").get<std::string>()), where(function.at("routes"), *platform)});
    }
    table.print(invocation, context);
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
    const State state = state_of(function, running(*platform));
    context.out << fmt::format("{} {} {}{}\n", function.at("name").get<std::string>(), live_text(function.at("live")),
                               state.word, state.requests ? fmt::format(" {} req", *state.requests) : "");
    return 0;
}

} // namespace

Command list_command(const char* name) {
    return {
        .name = name,
        .synopsis = "",
        .summary = std::string_view(name) == "ls" ? "the same as list" : "list the functions",
        .operands = Operands::none,
        .options = options({kSort, kNoHeader}),
        .action = [name](const Invocation& invocation, Context& context) { return list(name, invocation, context); }};
}

Command describe_command() {
    return {.name = "describe",
            .synopsis = "NAME",
            .summary = "tell all about a function",
            .operands = Operands::ours,
            .options = options(),
            .action = describe,
            .words = {Words::functions}};
}

} // namespace kvmserver::cli
