#include "src/store/files/hold.hpp"

#include "src/store/snapshots/snapshot_record.hpp"

namespace kvmserver::store {

std::optional<SnapshotHold> SnapshotHold::take(Store& store, const Digest& digest) {
    const FileLock naming = store.naming(); // no gc between making the mark and looking
    Pin mark(store.shared_folder(), snapshot_mark(digest), naming);
    if (!has_snapshot(*store.index(), digest))
        return std::nullopt;
    return SnapshotHold(digest, std::move(mark));
}

} // namespace kvmserver::store
