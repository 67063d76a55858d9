// A new index from the records, for one that is missing or damaged.
#pragma once
#include "src/store/index/index_file.hpp"
#include "src/store/report.hpp"

namespace kvmserver::store {

// Puts an index in place that holds what the records say; of an empty store, an empty one. index.lock is held
// exclusively, and there is no index.db.
void rebuild_index(Folder& folder, IndexFile& file, Findings& findings);

} // namespace kvmserver::store
