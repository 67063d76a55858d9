// The bucket of `serve --chunks`: chunks of snapshots as objects PREFIX/chunks/ab/abcdef..., named by their digest.
// PREFIX/kvmserver-store has the id of the store to which the prefix belongs.
#pragma once
#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>

#include "src/daemon/metrics.hpp"
#include "src/objects/bucket.hpp"
#include "src/store/snapshots/chunk_bucket.hpp"

namespace kvmserver::daemon {

// Thread-safe. After a request has failed, others fail at once for a second: they do not all wait for a service that is
// away.
class ChunkStore final : public store::ChunkBucket {
public:
    // `cluster`: id of the cluster to which the store belongs, and so its prefix; "": none.
    ChunkStore(objects::Address address, objects::Credentials credentials, std::filesystem::path store,
               std::string cluster = {});

    // Makes sure that the prefix belongs to this store; one that belongs to none is marked. Other functions do so
    // first. Throws UserError (conflict), ChunksAway.
    void claim();
    bool has(const Digest& chunk, std::uint64_t length) override;
    void put(const Digest& chunk, std::span<const std::byte> bytes) override;
    std::optional<std::vector<std::byte>> get(const Digest& chunk, std::uint64_t length) override;
    bool has_record(const Digest& snapshot) override;
    void put_record(const Digest& snapshot, const std::string& record) override;
    std::optional<std::string> get_record(const Digest& snapshot) override;
    void list_records(const std::function<void(const Digest& snapshot)>& take) override;
    void remove_record(const Digest& snapshot) override;
    void list(const std::function<void(const Digest& chunk)>& take) override;
    void remove(const Digest& chunk) override;
    std::string name_of(const Digest& chunk) const override;

    ChunkCounts counts() const;
    std::string text() const { return bucket_.address().text(); } // for messages

private:
    using Clock = std::chrono::steady_clock;
    template <class Action>
    auto try_to(const Action& action);
    void list_below(std::string_view prefix, std::string (*key_of)(const Digest&),
                    const std::function<void(const Digest&)>& take);
    objects::Bucket bucket_;
    const std::filesystem::path store_;
    const std::string cluster_;
    std::mutex claim_mutex_;
    bool claimed_ = false; // guarded by claim_mutex_
    std::mutex away_mutex_;
    std::string away_;               // why; guarded by away_mutex_, as is:
    Clock::time_point away_until_{}; // of the last failure
    std::atomic<std::uint64_t> sent_{0}, fetched_{0}, failures_{0};
};

} // namespace kvmserver::daemon
