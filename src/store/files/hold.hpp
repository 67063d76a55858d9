// Keeps a snapshot in the store while this process needs it, whether or not a function names it.
#pragma once
#include <optional>

#include "src/store/snapshots/pin.hpp"
#include "src/store/store.hpp"

namespace kvmserver::store {

// While this object exists, gc keeps the snapshot. The hold ends with the process at the latest.
class SnapshotHold {
public:
    // nullopt when there is no such snapshot. Callers also use this to find out whether an import is needed.
    static std::optional<SnapshotHold> take(Store& store, const Digest& digest);
    const Digest& digest() const { return digest_; }

private:
    friend class Importer;
    SnapshotHold(const Digest& digest, Pin mark) : digest_(digest), mark_(std::move(mark)) {}
    Digest digest_;
    Pin mark_;
};

} // namespace kvmserver::store
