// /v1/nodes: the daemons of a cluster.
#include "src/cluster/nodes.hpp"

#include <algorithm>

#include "src/admin/handlers.hpp"
#include "src/common/time_text.hpp"
#include "src/daemon/control.hpp"

namespace kvmserver::admin {
namespace {

cluster::Nodes& nodes_of(Call& call) {
    if (cluster::Nodes* const nodes = call.api.control().nodes())
        return *nodes;
    throw Refused(409, "no-cluster", "this store is in no cluster, and so has no nodes",
                  "`kvmserver serve --cluster` makes it a part of one");
}

json node_json(const cluster::Node& node) {
    json object{{"id", node.info.id},           {"name", node.info.name},
                {"version", node.info.version}, {"started", time_text(node.info.started_ms)},
                {"alive", node.alive},          {"drained", nullptr}};
    if (node.drained)
        object["drained"] = {{"since", time_text(node.drained->since_ms)}, {"by", node.drained->by}};
    return object;
}

// What is left to load balancers afterwards, too.
void reply_changed(Call& call, cluster::Nodes& nodes, const cluster::Node& node) {
    const auto list = nodes.list();
    const auto serving =
        std::ranges::count_if(list, [](const cluster::Node& one) { return one.alive && !one.drained; });
    json object = node_json(node);
    object["serving"] = serving;
    call.reply(200, object);
}

} // namespace

void list_nodes(Call& call) {
    auto list = json::array();
    for (const cluster::Node& node : nodes_of(call).list())
        list.push_back(node_json(node));
    call.reply(200, {{"nodes", list}});
}

void drain_node(Call& call) {
    call.no_members();
    cluster::Nodes& nodes = nodes_of(call);
    reply_changed(call, nodes, nodes.drain(call.param("node"), call.who.name()));
}

void uncordon_node(Call& call) {
    call.no_members();
    cluster::Nodes& nodes = nodes_of(call);
    reply_changed(call, nodes, nodes.uncordon(call.param("node")));
}

} // namespace kvmserver::admin
