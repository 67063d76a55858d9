// kvmserver nodes, drain and uncordon: the daemons of a cluster.
#include <fmt/format.h>

#include "src/cli/platform/platform.hpp"
#include "src/cli/platform/table.hpp"

namespace kvmserver::cli {
namespace {

using namespace platform;
using nlohmann::json;

std::string state_of(const json& node) {
    const bool alive = node.at("alive").get<bool>();
    if (node.at("drained").is_null())
        return alive ? "serving" : "away";
    return fmt::format("drained{}", alive ? "" : ", away");
}

int nodes(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "nodes", "", 0, 0);
    const json reply = connect(invocation, context)->call("GET", "/v1/nodes");
    if (flag(invocation, "json")) {
        print_json(context, reply);
        return 0;
    }
    Table table({"NODE", "ID", "STATE", "VERSION", "STARTED", "DRAINED"});
    for (const json& node : reply.at("nodes")) {
        const json& drained = node.at("drained");
        table.add({node.at("name"), node.at("id"), state_of(node), node.at("version"), ago(node.at("started")),
                   drained.is_null() ? ""
                                     : fmt::format("{}, by {}", ago(drained.at("since").get<std::string>()),
                                                   drained.at("by").get<std::string>())});
    }
    table.print(invocation, context);
    return 0;
}

int change(const Invocation& invocation, Context& context, const char* command) {
    expect_operands(invocation, command, "NODE", 1, 1);
    const json reply =
        connect(invocation, context)->call("POST", target_of({"nodes", invocation.operands.front(), command}));
    if (flag(invocation, "json")) {
        print_json(context, reply);
        return 0;
    }
    const std::string name = reply.at("name").get<std::string>();
    if (reply.at("drained").is_null())
        context.out << fmt::format("{}: load balancers send it requests again\n", name);
    else
        context.out << fmt::format("{}: drained; it serves what reaches it until load balancers notice\n", name);
    if (reply.at("serving") == 0)
        context.err << "kvmserver: no node of the cluster is left that is not drained: kvmserver uncordon NODE\n";
    return 0;
}

int drain(const Invocation& invocation, Context& context) { return change(invocation, context, "drain"); }
int uncordon(const Invocation& invocation, Context& context) { return change(invocation, context, "uncordon"); }

} // namespace

Command nodes_command() {
    return {.name = "nodes",
            .synopsis = "",
            .summary = "list the daemons of a cluster",
            .operands = Operands::ours,
            .options = options({kNoHeader}),
            .action = nodes};
}

Command drain_command() {
    return {.name = "drain",
            .synopsis = "NODE",
            .summary = "have load balancers send a daemon of a cluster no more requests",
            .operands = Operands::ours,
            .options = options({}),
            .action = drain};
}

Command uncordon_command() {
    return {.name = "uncordon",
            .synopsis = "NODE",
            .summary = "end a drain: load balancers send the daemon requests again",
            .operands = Operands::ours,
            .options = options({}),
            .action = uncordon};
}

} // namespace kvmserver::cli
