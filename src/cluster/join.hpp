// How a store becomes part of a cluster.
#pragma once
#include <functional>
#include <string>

#include "src/cluster/cluster_index.hpp"
#include "src/store/store.hpp"

namespace kvmserver::cluster {

// Makes the index that of the store's cluster, and returns its id: that of the store's record, else etcd's, which is
// made if there is none. Throws UserError (conflict): if the store belongs to another cluster, if etcd has lost the
// cluster, if a newer kvmserver made it; IndexAway if the store has never joined and etcd is not reached.
std::string identify(store::Folder& folder, ClusterIndex& index);

// The first start in a cluster brings it what the store has. `tell` gets a line for the log. Returns the store's id
// among those of the cluster. Throws what share_all() throws.
std::string join(store::Store& store, const ClusterIndex& index, const std::string& id,
                 const std::function<void(const std::string&)>& tell);

} // namespace kvmserver::cluster
