// Uploaded snapshots that no function names yet. gc spares them for a while, and a token that is limited to some
// functions may name those that it uploaded itself.
#pragma once
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "src/store/files/hold.hpp"

namespace kvmserver::admin {

// Thread-safe.
class Staged {
public:
    explicit Staged(std::chrono::milliseconds kept) : kept_(kept) {}
    // `token` is the uploader's id (Principal::id).
    void add(store::SnapshotHold hold, std::int64_t token);
    // The token does not need it any longer.
    void remove(const Digest& digest, std::int64_t token);
    std::vector<Digest> all_of(std::int64_t token);
    void expire(); // releases the holds that have expired, for gc

private:
    using Clock = std::chrono::steady_clock;
    struct Entry {
        store::SnapshotHold hold;
        std::set<std::int64_t> tokens;
        Clock::time_point until;
    };
    void drop_old();
    void make_room();
    const std::chrono::milliseconds kept_;
    std::mutex mutex_;
    std::map<Digest, Entry> entries_;
};

} // namespace kvmserver::admin
