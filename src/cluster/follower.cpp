#include "src/cluster/follower.hpp"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <utility>

#include "src/store/shared/copied.hpp"
#include "src/store/shared/copy.hpp"
#include "src/store/shared/documents.hpp"
#include "src/store/shared/drained.hpp"

namespace kvmserver::cluster {

namespace {

constexpr std::chrono::seconds kPause{1}; // before a failure is tried again

} // namespace

Follower::Follower(std::filesystem::path store, store::StoreOptions options, std::shared_ptr<ClusterIndex> index,
                   std::string node, std::function<void(const std::string&)> note)
    : path_(std::move(store)), options_(std::move(options)), index_(std::move(index)), node_(std::move(node)),
      note_(std::move(note)), watch_(index_->client()) {
    try {
        store_ = std::make_unique<store::Store>(path_, options_);
        look_whether_drained(); // also if etcd is away
        (void)copy();
    } catch (const std::exception& error) {
        failed(error.what());
    }
    thread_ = std::thread([this] { loop(); });
}

Follower::~Follower() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    watch_.stop();
    thread_.join();
}

bool Follower::stopped() {
    const std::lock_guard lock(mutex_);
    return stop_;
}

void Follower::failed(const std::string& why) {
    connected_ = false;
    if (said_ != why)
        note_(fmt::format("what other daemons of the cluster change is not copied: {}; what is here is served", why));
    said_ = why;
}

bool Follower::copy() {
    if (!store_)
        store_ = std::make_unique<store::Store>(path_, options_);
    reached_ = false;
    const store::CopiedAll copied = copy_all(*store_);
    reached_ = true;
    look_whether_drained();
    if (!copied.failed.empty()) {
        failed(copied.failed.size() == 1
                   ? copied.failed.front()
                   : fmt::format("{} (and {} more)", copied.failed.front(), copied.failed.size() - 1));
        return false;
    }
    revision_ = copied.revision;
    if (!std::exchange(said_, {}).empty())
        note_(fmt::format("the cluster's index in {} is followed again", index_->name()));
    return true;
}

void Follower::take(const etcd::Batch& batch) {
    for (const etcd::Event& event : batch.events) {
        if (event.entry.key == kClusterKey)
            index_->require_cluster(); // a newer kvmserver may have changed the form of what comes next
        if (!store::is_copied(event.entry.key))
            continue;
        if (event.deleted)
            store::copy_deletion(*store_, event.entry.key, event.entry.changed);
        else
            store::copy_entry(*store_, index_->opened(event.entry));
    }
    if (!batch.events.empty()) {
        auto index = store_->index();
        store::Transaction transaction(*index);
        store::note_followed(*index, batch.revision);
        transaction.commit();
    }
    look_whether_drained();
    revision_ = batch.revision;
}

void Follower::look_whether_drained() {
    const bool now = store::is_drained(*store_->index(), node_);
    if (drained_.exchange(now) != now)
        note_(now ? "this node is drained: /readyz answers 503, so that load balancers send their requests to others"
                  : "this node is not drained any more");
}

// What fails is copied with everything else, after a while.
void Follower::try_once() {
    if (!copy())
        return;
    connected_ = true;
    if (watch_.follow(revision_ + 1, [this](const etcd::Batch& batch) { take(batch); }) == etcd::Watch::End::stopped)
        return;
    reached_ = false;
    failed(watch_.why());
}

void Follower::loop() {
    while (!stopped()) {
        try {
            try_once();
        } catch (const std::exception& error) {
            failed(error.what());
        }
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, kPause, [this] { return stop_; });
    }
}

} // namespace kvmserver::cluster
