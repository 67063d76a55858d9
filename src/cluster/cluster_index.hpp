// The index of a cluster in etcd. Values are sealed, but for those that have no secrets (is_plain()).
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/cluster/seal.hpp"
#include "src/etcd/client.hpp"
#include "src/store/shared/shared_index.hpp"

namespace kvmserver::cluster {

// The key of the cluster's id: an etcd that does not have it, or another one, is not this cluster's, whatever else it
// has or lacks.
inline constexpr const char* kClusterKey = "cluster";

// Thread-safe. After etcd was not reached, other requests fail at once for a second: they do not all wait for it.
class ClusterIndex final : public store::SharedIndex {
public:
    ClusterIndex(etcd::Address address, etcd::Credentials credentials, Seal seal);

    // The cluster's id in etcd; nullopt: none. Throws as others do, and UserError (conflict) if a newer kvmserver has
    // changed the form of the entries.
    std::optional<std::string> id();
    // An etcd that has none gets this one. Returns the one that it has then.
    std::string id_or(const std::string& made);
    // From here on all calls throw UserError (conflict) if etcd is not this cluster's.
    void belong_to(const std::string& id);
    void require_cluster();

    std::optional<store::SharedEntry> get(const std::string& key) override;
    std::vector<store::SharedEntry> entries(const std::string& prefix) override;
    std::int64_t list(const std::function<void(store::SharedEntry)>& take) override;
    std::optional<std::int64_t> change(std::span<const store::SharedCondition> conditions,
                                       std::span<const store::SharedChange> changes) override;
    std::unique_ptr<store::SharedLock> try_lock(const std::string& key) override;
    std::string name() const override;

    // Entries that are put with it are deleted when it is destroyed, or was not kept for so long.
    class Lease;
    std::unique_ptr<Lease> lease(std::int64_t seconds);
    // Whatever was there before.
    void put(const std::string& key, const std::string& value, const Lease& lease);

    // The value of an entry that a watch told.
    store::SharedEntry opened(etcd::Entry entry) const;
    etcd::Client& client() { return client_; }

private:
    class Lock;
    std::string sealed(const std::string& key, const std::string& value) const;
    using Clock = std::chrono::steady_clock;
    template <class Action>
    auto try_to(const Action& action);
    std::optional<store::SharedEntry> read(const std::string& key);
    std::string id_in(const store::SharedEntry& entry) const;
    std::int64_t cluster_revision();
    void note_verified(std::int64_t revision);
    etcd::Client client_;
    const Seal seal_;
    std::mutex mutex_;
    std::string away_;               // why; guarded by mutex_, as is:
    Clock::time_point away_until_{}; // of the last failure
    std::string id_;                 // "": any, as is:
    std::int64_t revision_ = 0;      // of the entry with this id; 0: not seen yet
    std::int64_t verified_ = 0;      // up to this revision, no newer kvmserver had changed the form of the entries
};

class ClusterIndex::Lease {
public:
    Lease(ClusterIndex& index, std::int64_t id) : index_(index), id_(id) {}
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    bool keep();                          // false: it has ended. Throws IndexAway
    void abandon() { abandoned_ = true; } // it ends by itself
    std::int64_t id() const { return id_; }

private:
    ClusterIndex& index_;
    const std::int64_t id_;
    bool abandoned_ = false;
};

} // namespace kvmserver::cluster
