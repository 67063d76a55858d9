// The index of a cluster in etcd. Values are sealed, but for those that have no secrets (is_plain()).
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "src/cluster/seal.hpp"
#include "src/etcd/client.hpp"
#include "src/store/shared/shared_index.hpp"

namespace kvmserver::cluster {

// Thread-safe. After etcd was not reached, other requests fail at once for a second: they do not all wait for it.
class ClusterIndex final : public store::SharedIndex {
public:
    ClusterIndex(etcd::Address address, etcd::Credentials credentials, Seal seal);

    std::optional<store::SharedEntry> get(const std::string& key) override;
    std::int64_t list(const std::function<void(store::SharedEntry)>& take) override;
    std::optional<std::int64_t> change(std::span<const store::SharedCondition> conditions,
                                       std::span<const store::SharedChange> changes) override;
    std::string name() const override;

    // The value of an entry that a watch told.
    store::SharedEntry opened(etcd::Entry entry) const;
    etcd::Client& client() { return client_; }

private:
    using Clock = std::chrono::steady_clock;
    template <class Action>
    auto try_to(const Action& action);
    etcd::Client client_;
    const Seal seal_;
    std::mutex mutex_;
    std::string away_;               // why; guarded by mutex_, as is:
    Clock::time_point away_until_{}; // of the last failure
};

} // namespace kvmserver::cluster
