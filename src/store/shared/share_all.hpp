// The first step of a store in a cluster: what it has becomes the cluster's.
#pragma once
#include <cstdint>

#include "src/store/store.hpp"

namespace kvmserver::store {

// Brings functions with their snapshots, and what belongs to no function, to the cluster's index and bucket. May be
// repeated after a failure. Returns how many functions. Throws Conflict if the cluster has a function of the same name,
// or if both have settings; IndexAway, ChunksAway, UserError.
std::uint64_t share_all(Store& store);

} // namespace kvmserver::store
