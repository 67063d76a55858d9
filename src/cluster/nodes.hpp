// The nodes of a cluster: daemons, each with a store of its own, and which of them are drained. In the cluster's index
// nodes/ID is there while the daemon of that store runs, and drained/ID until somebody removes it.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/cluster/cluster_index.hpp"

namespace kvmserver::cluster {

// A daemon, as it says of itself.
struct NodeInfo {
    std::string id;              // of its store
    std::string name;            // for people: several may have the same
    std::string version;         // of kvmserver
    std::int64_t started_ms = 0; // since 1970
};

struct Drained {
    std::int64_t since_ms = 0; // since 1970
    std::string by;            // name of the token, or of the user
};

struct Node {
    NodeInfo info;                  // as it was when it was drained, if it is not alive
    bool alive = false;             // it says so
    std::optional<Drained> drained; // load balancers shall send it no requests: its /readyz says 503
};

// All throw IndexAway, and UserError if what the index has makes no sense.
class Nodes {
public:
    explicit Nodes(std::shared_ptr<ClusterIndex> index) : index_(std::move(index)) {}

    // By name. Those that are neither alive nor drained are not known.
    std::vector<Node> list();
    // `node`: its name or its id. Throw NotFound, and Conflict if several have the name. Return it as it is then.
    Node drain(const std::string& node, const std::string& by);
    Node uncordon(const std::string& node);

    // Says that it is there, until the lease ends.
    void announce(const NodeInfo& self, const ClusterIndex::Lease& lease);

private:
    Node find(const std::string& node);
    const std::shared_ptr<ClusterIndex> index_;
};

} // namespace kvmserver::cluster
