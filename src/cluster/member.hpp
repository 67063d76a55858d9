// A daemon's part in a cluster.
#pragma once
#include "src/cluster/away_limit.hpp"
#include "src/cluster/follower.hpp"
#include "src/cluster/nodes.hpp"
#include "src/cluster/presence.hpp"

namespace kvmserver::cluster {

class Member {
public:
    // As Follower's constructor; `self`: this daemon; `away_limit`: as AwayLimit's.
    Member(const std::filesystem::path& store, store::StoreOptions options, const std::shared_ptr<ClusterIndex>& index,
           const NodeInfo& self, std::chrono::milliseconds away_limit,
           const std::function<void(const std::string&)>& note)
        : nodes_(index), follower_(store, std::move(options), index, self.id, note), presence_(index, self, note),
          away_limit_(store, away_limit, note) {
        tick();
    }

    Nodes& nodes() { return nodes_; } // thread-safe
    FollowerState state() const { return follower_.state(); }
    void tick() { away_limit_.tick(follower_.state().reached); } // often, from one thread
    bool is_away_too_long() const { return away_limit_.over(); } // functions are not to be served; any thread

private:
    Nodes nodes_;
    Follower follower_;
    Presence presence_;
    AwayLimit away_limit_;
};

} // namespace kvmserver::cluster
