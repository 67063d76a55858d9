// Snapshots that were brought and that no function names yet: gc leaves them alone for a while, and a token
// that is limited to some functions may name those that it brought itself.
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
    // By the holder of that token (Principal::id).
    void add(store::SnapshotHold hold, std::int64_t token);
    std::vector<Digest> all_of(std::int64_t token);
    void expire(); // gives up those whose time is over: gc may have them

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
