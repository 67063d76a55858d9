#include "src/cluster/nodes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "src/common/clock.hpp"
#include "src/store/errors.hpp"
#include "src/store/files/record_json.hpp"
#include "src/store/shared/documents.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::cluster {

namespace {

using store::Json;
using store::kSharedDrained, store::kSharedNodes;
using tinykvm::ExitCode;
using tinykvm::UserError;

Json to_json(const NodeInfo& info) {
    return {{"name", info.name}, {"version", info.version}, {"started", info.started_ms}};
}

NodeInfo info_from(const Json& json, std::string id) {
    return {std::move(id), store::text_field(json, "name"), store::text_field(json, "version"),
            store::time_field(json, "started")};
}

std::string key_of(std::string_view prefix, const std::string& id) { return fmt::format("{}{}", prefix, id); }

} // namespace

std::vector<Node> Nodes::list() {
    std::map<std::string, Node> nodes; // by id
    const auto read = [&](std::string_view prefix, const auto& take) {
        for (const store::SharedEntry& entry : index_->entries(std::string(prefix)))
            try {
                const std::string id = entry.key.substr(prefix.size());
                take(nodes[id], id, store::parse_record(entry.value));
            } catch (const store::RecordError& error) {
                throw UserError(ExitCode::failure,
                                fmt::format("{}: {}: {}: delete it with etcdctl, and drain the node again",
                                            index_->name(), tinykvm::brief(entry.key), error.what()));
            }
    };
    read(kSharedDrained, [](Node& node, const std::string& id, const Json& json) {
        node.info = info_from(store::field(json, "node"), id);
        node.drained = Drained{store::time_field(json, "since"), store::text_field(json, "by")};
    });
    read(kSharedNodes, [](Node& node, const std::string& id, const Json& json) {
        node.info = info_from(json, id);
        node.alive = true;
    });
    std::vector<Node> list;
    list.reserve(nodes.size());
    for (auto& [id, node] : nodes)
        list.push_back(std::move(node));
    std::ranges::sort(list, [](const Node& one, const Node& other) {
        return std::tie(one.info.name, one.info.id) < std::tie(other.info.name, other.info.id);
    });
    return list;
}

Node Nodes::find(const std::string& node) {
    std::vector<Node> found;
    for (Node& one : list())
        if (one.info.id == node)
            return std::move(one);
        else if (one.info.name == node)
            found.push_back(std::move(one));
    if (found.empty())
        throw store::NotFound(
            fmt::format("no node {}: `kvmserver nodes` lists those of the cluster", tinykvm::brief(node)));
    if (found.size() > 1)
        throw store::Conflict(fmt::format("{} nodes are called {}: give the id of one, as `kvmserver nodes` tells it",
                                          found.size(), tinykvm::brief(node)));
    return std::move(found.front());
}

Node Nodes::drain(const std::string& which, const std::string& by) {
    Node node = find(which);
    if (node.drained)
        return node;
    node.drained = Drained{now_ms(), by};
    const Json json{{"node", to_json(node.info)}, {"since", node.drained->since_ms}, {"by", by}};
    const store::SharedChange change{key_of(kSharedDrained, node.info.id), json.dump()};
    (void)index_->change({}, {&change, 1}); // whoever drains it at the same time: it is drained
    return node;
}

Node Nodes::uncordon(const std::string& which) {
    Node node = find(which);
    node.drained.reset();
    const store::SharedChange change{key_of(kSharedDrained, node.info.id), std::nullopt};
    (void)index_->change({}, {&change, 1});
    return node;
}

void Nodes::announce(const NodeInfo& self, const ClusterIndex::Lease& lease) {
    index_->put(key_of(kSharedNodes, self.id), to_json(self).dump(), lease);
}

} // namespace kvmserver::cluster
