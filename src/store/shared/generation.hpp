// What a deploy in a cluster counts on: that the bucket has the chunks of its snapshot. gc of another daemon may remove
// them as long as no function has the snapshot.
//
// The bucket has a generation, an entry of the cluster's index that changes before each gc. A change that makes a
// snapshot a function's has the conditions that no gc runs, and that the generation is the one in which the bucket was
// asked for all of its chunks. gc in turn begins with the generation, and only then reads which snapshots functions
// have.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "src/common/digest.hpp"
#include "src/store/shared/shared_index.hpp"
#include "src/store/store.hpp"

namespace kvmserver::store {

// Makes sure that the bucket has the snapshots' chunks, and calls `change`, which makes them a function's; again if gc
// came in between. Without a cluster just calls it.
void with_chunks_in_bucket(Store& store, std::span<const Digest> snapshots, const std::function<void()>& change);

// The conditions of a change for these snapshots, which functions do not have yet.
std::vector<SharedCondition> conditions_of_bucket(const Database& database, std::span<const Digest> snapshots);
// Throws BucketCollected if a change failed for these conditions.
void require_same_generation(SharedIndex& index, std::span<const SharedCondition> conditions);

} // namespace kvmserver::store
