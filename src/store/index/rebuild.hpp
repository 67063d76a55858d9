// Builds a new index from the records when it is missing or damaged.
#pragma once
#include "src/store/index/index_file.hpp"
#include "src/store/report.hpp"

namespace kvmserver::store {

// Creates index.db from the records; for an empty store, an empty one. Requires index.lock to be held exclusively, and
// that there is no index.db.
void rebuild_index(Folder& folder, IndexFile& file, Findings& findings);

} // namespace kvmserver::store
