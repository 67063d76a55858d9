// Says to the cluster that this daemon is there, as long as it is.
#pragma once
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "src/cluster/nodes.hpp"

namespace kvmserver::cluster {

// Of a daemon that is killed, or cannot reach etcd, the others know soon: this is how long its lease lasts.
inline constexpr std::int64_t kPresenceSeconds = 10;

class Presence {
public:
    // Says so once before it returns, if etcd is reached, and then from a thread of its own. `note` gets lines for the
    // log.
    Presence(std::shared_ptr<ClusterIndex> index, NodeInfo self, std::function<void(const std::string&)> note);
    ~Presence(); // says that it is gone, if etcd is reached
    Presence(const Presence&) = delete;
    Presence& operator=(const Presence&) = delete;

private:
    void say(); // keeps what is said, or says it anew. Throws nothing
    void loop();

    const std::shared_ptr<ClusterIndex> index_;
    const NodeInfo self_;
    const std::function<void(const std::string&)> note_;
    std::unique_ptr<ClusterIndex::Lease> lease_; // null: nothing is said
    std::string said_;                           // the last failure, which is not repeated; "": none since then
    std::mutex mutex_;
    std::condition_variable changed_;
    bool stop_ = false; // guarded by mutex_
    std::thread thread_;
};

} // namespace kvmserver::cluster
