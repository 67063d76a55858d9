// A daemon's part in a cluster.
#pragma once
#include "src/cluster/follower.hpp"
#include "src/cluster/nodes.hpp"
#include "src/cluster/presence.hpp"

namespace kvmserver::cluster {

class Member {
public:
    // As Follower's constructor; `self`: this daemon.
    Member(std::filesystem::path store, store::StoreOptions options, const std::shared_ptr<ClusterIndex>& index,
           const NodeInfo& self, const std::function<void(const std::string&)>& note)
        : nodes_(index), follower_(std::move(store), std::move(options), index, self.id, note),
          presence_(index, self, note) {}

    Nodes& nodes() { return nodes_; } // thread-safe
    FollowerState state() const { return follower_.state(); }

private:
    Nodes nodes_;
    Follower follower_;
    Presence presence_;
};

} // namespace kvmserver::cluster
