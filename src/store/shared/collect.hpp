// Removes from the bucket of a cluster what no function of it needs.
#pragma once
#include <cstdint>

#include "src/store/store.hpp"

namespace kvmserver::store {

// Returns how many objects it has removed, or would remove. Deploys of all daemons wait while it removes, and go on
// every few seconds. Throws Conflict if another daemon does so, IndexAway, ChunksAway, UserError.
std::uint64_t collect_shared_bucket(Store& store, bool dry_run);

} // namespace kvmserver::store
