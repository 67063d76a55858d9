// The index of a cluster: what several daemons, each with a store of its own, have in common. A store's own index is a
// copy of it, from which requests are served.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kvmserver::store {

struct SharedEntry {
    std::string key, value;
    std::int64_t revision = 0; // at which it was written; grows with each change of the cluster
};

struct SharedCondition {
    std::string key;
    std::int64_t revision = 0;             // of its entry; 0: there is none
    std::optional<std::string> value = {}; // instead: its value, which has no secrets (see is_plain())
};

struct SharedChange {
    std::string key;
    std::optional<std::string> value; // nullopt: the entry is deleted
};

// Held until it is destroyed, or for a while longer if the daemon dies.
class SharedLock {
public:
    virtual ~SharedLock() = default;
    // Whether it still is, and then so for kLockSeconds from now on. Throws IndexAway.
    virtual bool held() = 0;
    // It is not given back, and ends kLockSeconds after held(): what it was for may still happen. Throws nothing.
    virtual void abandon() = 0;
};
inline constexpr std::int64_t kLockSeconds = 60;

// Any number of threads may use it. All but name() throw IndexAway, and UserError if the service refuses or what it has
// is not of this cluster.
class SharedIndex {
public:
    virtual ~SharedIndex() = default;
    // As it is now for all daemons.
    virtual std::optional<SharedEntry> get(const std::string& key) = 0;
    // Those whose keys begin so.
    virtual std::vector<SharedEntry> entries(const std::string& prefix) = 0;
    // All entries without their values, at one moment. Returns its revision.
    virtual std::int64_t list(const std::function<void(SharedEntry)>& take) = 0;
    // All changes or none. Returns their revision; nullopt: a condition does not hold.
    virtual std::optional<std::int64_t> change(std::span<const SharedCondition> conditions,
                                               std::span<const SharedChange> changes) = 0;
    // An entry that one daemon of the cluster can have at a time. Null: another one has it.
    virtual std::unique_ptr<SharedLock> try_lock(const std::string& key) = 0;
    virtual std::string name() const = 0; // for messages
};

} // namespace kvmserver::store
