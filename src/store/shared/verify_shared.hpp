// Checks what a cluster has in its index and its bucket.
#pragma once
#include "src/store/snapshots/verify.hpp"
#include "src/store/store.hpp"

namespace kvmserver::store {

// Whether all entries can be read and agree, and the bucket has what they name. Objects are not read back, but for
// lists of chunks: what a daemon fetches is checked. With `repair`, what is missing in the bucket and is on this
// store's disk is sent again. The counts are the cluster's. Everything else may go on. Throws IndexAway, ChunksAway,
// UserError.
VerifyReport verify_shared(Store& store, bool repair);

} // namespace kvmserver::store
