// Brings a change to the cluster's index, within the transaction that makes it in the store's own one: if this throws,
// nothing has changed, and if it returns, all daemons will have it. Does nothing in a store without a SharedIndex.
// Throws Conflict if another daemon made a change at the same moment, IndexAway, UserError.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "src/store/functions/names.hpp"
#include "src/store/store.hpp"

namespace kvmserver::store {

// `routes_before`: those that the function had. `new_snapshots`: those that it has not had (generation.hpp); throws
// BucketCollected for them.
void publish_function(Store& store, Database& database, std::int64_t id, const std::vector<Route>& routes_before,
                      std::span<const Digest> new_snapshots = {});
void publish_removal(Store& store, Database& database, const std::string& name,
                     const std::vector<Route>& routes_before);
void publish_settings(Store& store, Database& database);

// The routes of the function as the transaction sees them.
std::vector<Route> routes_of(const Database& database, std::int64_t function);

} // namespace kvmserver::store
