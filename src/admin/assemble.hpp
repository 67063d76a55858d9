// What an upload becomes once all of it has come.
#pragma once
#include "src/admin/call.hpp"
#include "src/ops/import.hpp"

namespace kvmserver::admin {

// A snapshot's file, or a delta (src/ops/delta.hpp) together with pieces of the store that the caller may
// name. The snapshot is checked in full before it is in the index. Throws UserError (bad_snapshot),
// MissingChunk, DigestMismatch, BadValue.
ops::Imported assemble(Call& call, int upload);

} // namespace kvmserver::admin
