// Keeps a store a copy of its cluster's index, behind the requests.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "src/cluster/cluster_index.hpp"
#include "src/etcd/watch.hpp"
#include "src/store/store.hpp"

namespace kvmserver::cluster {

// For metrics.
struct FollowerState {
    bool connected = false;    // to etcd: what others change comes at once
    bool reached = false;      // so, or what is not copied is single entries
    std::int64_t revision = 0; // of the index up to which all is copied
    bool drained = false;      // this node is, as far as that is copied
};

class Follower {
public:
    // Copies all that it can before it returns: it does not wait for an etcd that is not reached. `options`: how the
    // store is opened, with the index. `node`: the store's id. `note` gets lines for the log, from this thread and from
    // one of its own.
    Follower(std::filesystem::path store, store::StoreOptions options, std::shared_ptr<ClusterIndex> index,
             std::string node, std::function<void(const std::string&)> note);
    ~Follower();
    Follower(const Follower&) = delete;
    Follower& operator=(const Follower&) = delete;

    FollowerState state() const { return {connected_, connected_ || reached_, revision_, drained_}; }

private:
    bool copy(); // all. Returns whether a watch may go on from revision_
    void take(const etcd::Batch& batch);
    void look_whether_drained();
    void loop();
    void try_once();
    void failed(const std::string& why);
    bool stopped();

    const std::filesystem::path path_;
    const store::StoreOptions options_;
    const std::shared_ptr<ClusterIndex> index_;
    const std::string node_;
    const std::function<void(const std::string&)> note_;
    std::unique_ptr<store::Store> store_; // a connection of its own: requests do not wait for it
    std::string said_;                    // the last failure, which is not repeated; "": none since then
    std::atomic<bool> connected_ = false, reached_ = false, drained_ = false;
    std::atomic<std::int64_t> revision_ = 0;
    etcd::Watch watch_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool stop_ = false; // guarded by mutex_
    std::thread thread_;
};

} // namespace kvmserver::cluster
