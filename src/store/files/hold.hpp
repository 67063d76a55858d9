// Keeps a snapshot in the store as long as this process wants it, whether a function names it or not.
#pragma once
#include <optional>

#include "src/store/snapshots/pin.hpp"
#include "src/store/store.hpp"

namespace kvmserver::store {

// While it lives, gc leaves the snapshot alone; it goes with the process.
class SnapshotHold {
public:
    // Nothing: there is no such snapshot. That is also how to ask whether an import is needed at all.
    static std::optional<SnapshotHold> take(Store& store, const Digest& digest);
    const Digest& digest() const { return digest_; }

private:
    friend class Importer;
    SnapshotHold(const Digest& digest, Pin mark) : digest_(digest), mark_(std::move(mark)) {}
    Digest digest_;
    Pin mark_;
};

} // namespace kvmserver::store
