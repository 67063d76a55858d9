// kvmserver versions, rollback, traffic: show and change which versions of a function serve requests.
#include <fmt/format.h>

#include "src/cli/platform/platform.hpp"
#include "src/cli/platform/table.hpp"
#include "src/ops/reference.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

using namespace platform;
using nlohmann::json;

// Why another digest will take its place soon. An older daemon does not tell.
std::string soon_another(const json& version) {
    return version.value("warms_up", false)         ? " (to be warmed up)"
           : version.value("compress_later", false) ? " (to be compressed)"
                                                    : "";
}

int versions(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "versions", "NAME", 1, 1);
    const json all =
        connect(invocation, context)->call("GET", target_of({"functions", invocation.operands.front(), "versions"}));
    if (flag(invocation, "json")) {
        print_json(context, all);
        return 0;
    }
    Table table({"VERSION", "STATE", "CREATED", "SIZE", "SNAPSHOT"});
    for (const json& version : all.at("versions")) {
        const auto percent = version.at("percent").get<unsigned>();
        table.add({fmt::format("v{}", version.at("version").get<std::uint64_t>()),
                   percent > 0 ? fmt::format("live {}%", percent) : version.at("state").get<std::string>(),
                   ago(version.at("created").get<std::string>()), bytes_text(version.at("bytes").get<std::uint64_t>()),
                   version.at("snapshot").get<std::string>().substr(0, 7 + 12) + soon_another(version)});
    }
    table.print(invocation, context);
    return 0;
}

int print_switched(const Invocation& invocation, Context& context, const json& switched) {
    if (flag(invocation, "json"))
        print_json(context, switched);
    else
        context.out << fmt::format("{} {} -> {}{}\n", switched.at("name").get<std::string>(),
                                   live_text(switched.at("before")), live_text(switched.at("live")),
                                   switched.at("dry_run").get<bool>() ? " (dry run)" : "");
    return 0;
}

std::string with_dry_run(const Invocation& invocation, const std::string& target) {
    return target + (flag(invocation, "dry-run") ? "?dry_run=1" : "");
}

int rollback(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "rollback", "NAME [VERSION]", 1, 2);
    const std::string& name = invocation.operands.front();
    json body = json::object();
    if (invocation.operands.size() == 2)
        body["version"] = ops::version_number(invocation.operands[1]);
    add_message(invocation, body);
    const auto platform = connect(invocation, context);
    const std::string target = target_of({"functions", name, "rollback"});
    const json would = platform->call("POST", target + "?dry_run=1", body);
    if (flag(invocation, "dry-run"))
        return print_switched(invocation, context, would);
    // Scripts that repair something must not be stopped by a question.
    if (on_terminal() && !agreed(invocation, context,
                                 fmt::format("Roll back {} from {} to {} on {}?", name, live_text(would.at("before")),
                                             live_text(would.at("live")), platform->shown())))
        throw tinykvm::UserError(tinykvm::ExitCode::failure, "nothing was rolled back");
    body["version"] = would.at("live").at(0).at("version"); // what was agreed to, whoever deployed meanwhile
    return print_switched(invocation, context, platform->call("POST", target, body));
}

// Parses "3=10", "v3=10%".
json share(const std::string& word) {
    const auto equals = word.find('=');
    if (equals == word.npos)
        throw tinykvm::UserError(tinykvm::ExitCode::usage, fmt::format("'{}': write VERSION=PERCENT, as v3=10", word));
    std::string percent = word.substr(equals + 1);
    if (percent.ends_with('%'))
        percent.pop_back();
    const std::uint64_t value = ops::whole_number(percent, "percentage");
    if (value > 100)
        throw tinykvm::UserError(tinykvm::ExitCode::usage, fmt::format("'{}': that is more than 100%", word));
    return {{"version", ops::version_number(word.substr(0, equals))}, {"percent", value}};
}

int show_traffic(const Invocation& invocation, Context& context, const std::string& name) {
    const json function = connect(invocation, context)->call("GET", target_of({"functions", name}));
    if (flag(invocation, "json"))
        print_json(context, {{"name", name}, {"live", function.at("live")}});
    else
        context.out << fmt::format("{} {}\n", name, live_text(function.at("live")));
    return 0;
}

int traffic(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "traffic", "NAME [VERSION=PERCENT...]", 1, 100);
    const std::string& name = invocation.operands.front();
    json body = json::object();
    add_message(invocation, body);
    if (invocation.operands.size() == 1 && !body.empty())
        throw tinykvm::UserError(tinykvm::ExitCode::usage, "traffic: --message is for a change: give VERSION=PERCENT");
    if (invocation.operands.size() == 1)
        return show_traffic(invocation, context, name);
    json live = json::array();
    for (std::size_t i = 1; i < invocation.operands.size(); ++i)
        if (json part = share(invocation.operands[i]); part["percent"] > 0)
            live.push_back(part);
    if (live.empty())
        throw tinykvm::UserError(tinykvm::ExitCode::usage, "traffic: the percentages must be 100 in all");
    body["live"] = live;
    const std::string target = with_dry_run(invocation, target_of({"functions", name, "traffic"}));
    return print_switched(invocation, context, connect(invocation, context)->call("PUT", target, body));
}

} // namespace

Command versions_command() {
    return {.name = "versions",
            .synopsis = "NAME",
            .summary = "list the versions of a function",
            .operands = Operands::ours,
            .options = options({kNoHeader}),
            .action = versions,
            .words = {Words::functions}};
}

Command rollback_command() {
    return {.name = "rollback",
            .synopsis = "NAME [VERSION]",
            .summary = "make an older version live",
            .operands = Operands::ours,
            .options = options({kDryRun, kMessage}),
            .action = rollback,
            .words = {Words::functions, Words::versions}};
}

Command traffic_command() {
    return {.name = "traffic",
            .synopsis = "NAME [VERSION=PERCENT...]",
            .summary = "divide requests between versions, or show how they are",
            .operands = Operands::ours,
            .options = options({kDryRun, kMessage}),
            .action = traffic,
            .words = {Words::functions}};
}

} // namespace kvmserver::cli
