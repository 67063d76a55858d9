#include "src/cluster/presence.hpp"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <utility>

#include "src/store/errors.hpp"

namespace kvmserver::cluster {

namespace {

constexpr std::chrono::seconds kKeep{kPresenceSeconds / 3};

} // namespace

Presence::Presence(std::shared_ptr<ClusterIndex> index, NodeInfo self, std::function<void(const std::string&)> note)
    : index_(std::move(index)), self_(std::move(self)), note_(std::move(note)) {
    say();
    thread_ = std::thread([this] { loop(); });
}

Presence::~Presence() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void Presence::say() {
    try {
        if (lease_ && lease_->keep())
            return;
        auto lease = index_->lease(kPresenceSeconds);
        Nodes(index_).announce(self_, *lease);
        lease_ = std::move(lease);
        said_.clear();
    } catch (const store::IndexAway&) { // the follower says so; the lease is kept once etcd is reached again
    } catch (const std::exception& error) {
        if (std::exchange(said_, error.what()) != error.what())
            note_(fmt::format("this daemon is not among the nodes of the cluster: {}", error.what()));
    }
}

void Presence::loop() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kKeep, [this] { return stop_; })) {
        lock.unlock();
        say();
        lock.lock();
    }
}

} // namespace kvmserver::cluster
