// Where chunks are besides the disk: a bucket of a service of objects. The disk is a cache of it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/common/digest.hpp"

namespace kvmserver::store {

// Any number of threads may use it. Objects never change, and only gc removes them. All but name_of() and uses throw
// ChunksAway.
class ChunkBucket {
public:
    virtual ~ChunkBucket() = default;
    virtual bool has(const Digest& chunk, std::uint64_t length) = 0;
    virtual void put(const Digest& chunk, std::span<const std::byte> bytes) = 0;
    // The bytes are not checked. nullopt: there is no such object.
    virtual std::optional<std::vector<std::byte>> get(const Digest& chunk, std::uint64_t length) = 0;
    // The list of a snapshot's chunks, for other stores of the same cluster.
    virtual bool has_record(const Digest& snapshot) = 0;
    virtual void put_record(const Digest& snapshot, const std::string& record) = 0;
    virtual std::optional<std::string> get_record(const Digest& snapshot) = 0; // not checked
    virtual void list_records(const std::function<void(const Digest& snapshot)>& take) = 0;
    virtual void remove_record(const Digest& snapshot) = 0;
    virtual void list(const std::function<void(const Digest& chunk)>& take) = 0;
    virtual void remove(const Digest& chunk) = 0;
    virtual std::string name_of(const Digest& chunk) const = 0; // of the object, for messages

    // When a chunk was last needed, as a number that grows; 0: not since this process began.
    void note_use(const Digest& chunk);
    std::uint64_t last_use(const Digest& chunk) const;

private:
    mutable std::mutex uses_mutex_;
    std::uint64_t now_ = 0;                // guarded by uses_mutex_, as is:
    std::map<Digest, std::uint64_t> uses_; // no more than the index has chunks, but for removed ones
};

} // namespace kvmserver::store
