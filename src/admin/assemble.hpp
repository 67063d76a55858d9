// Turns a complete upload into a snapshot of the store.
#pragma once
#include "src/admin/call.hpp"
#include "src/ops/import.hpp"

namespace kvmserver::admin {

// `upload` is a snapshot file, or a delta (src/ops/delta.hpp) that also refers to pieces of the store that the caller
// may name. The snapshot is checked in full before it enters the index. Throws UserError (bad_snapshot), MissingChunk,
// DigestMismatch, BadValue.
ops::Imported assemble(Call& call, int upload);

} // namespace kvmserver::admin
