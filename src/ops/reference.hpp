// Names of snapshots in a store, as people write them.
#pragma once
#include <string>

#include "src/common/digest.hpp"
#include "src/store/store.hpp"

namespace kvmserver::ops {

// Resolves "sha256:ab12..." (a unique prefix is enough), "NAME" (the live version with the most requests) or "NAME@3".
// Throws NotFound, and UserError (usage) for any other form.
Digest find_snapshot(store::Store& store, const std::string& reference);

} // namespace kvmserver::ops
