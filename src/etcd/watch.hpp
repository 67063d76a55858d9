// Follows all changes below the address's prefix.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/etcd/client.hpp"

namespace kvmserver::etcd {

struct Event {
    Entry entry; // deleted: has no value, created is 0, and changed is the revision of the deletion
    bool deleted = false;
};

// All events up to `revision` that were not told before, in order. All events of one revision are in one batch.
// Without events if nothing changed below the prefix: the next watch may begin at revision + 1 nevertheless.
struct Batch {
    std::int64_t revision = 0;
    std::vector<Event> events;
};

class Watch {
public:
    enum class End {
        stopped,
        compacted, // etcd no longer has the history since `from`: read everything anew
        broken,    // the connection could not be made, ended, or its other end no longer serves
    };

    // `client` must outlive it. Throws UserError (unreachable) if this host's libcurl cannot do it.
    explicit Watch(Client& client);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    // Blocks, and calls `take` for each batch on this thread, from the changes of revision `from` (1 or more) on. One
    // call at a time; after `broken` it may be called again, for revision + 1 of the last batch, at the next
    // endpoint. What `take` throws passes through. Throws Refused if etcd does not allow the watch.
    End follow(std::int64_t from, const std::function<void(Batch)>& take);
    // From any thread: follow() returns as soon as `take` does, now and whenever it is called later.
    void stop();
    // Why the last follow() ended with compacted or broken: one line. For the thread that called it.
    const std::string& why() const { return why_; }

private:
    class Multi;
    class Run;
    Client& client_;
    std::unique_ptr<Multi> multi_;
    std::atomic<bool> stopping_ = false;
    std::string why_;
    std::size_t endpoint_; // index of the one to follow next
};

} // namespace kvmserver::etcd
