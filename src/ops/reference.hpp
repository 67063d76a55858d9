// Snapshots of a store, as people name them.
#pragma once
#include <string>

#include "src/common/digest.hpp"
#include "src/store/store.hpp"

namespace kvmserver::ops {

// "sha256:ab12..." (its beginning is enough when there is only one such), "NAME" (the live version that gets
// most requests) or "NAME@3". Throws NotFound, and UserError (usage) for what is none of these.
Digest find_snapshot(store::Store& store, const std::string& reference);

} // namespace kvmserver::ops
