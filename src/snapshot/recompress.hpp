// Compresses a snapshot anew that was written in a hurry (kQuickLevel). The result is what write_snapshot() gives at
// its default level.
#pragma once
#include <optional>

#include "src/snapshot/byte_source.hpp"
#include "src/snapshot/pressed.hpp"

namespace kvmserver {

// Writes the new file to `out`, an empty file. Returns nothing if no chunk was compressed in a hurry; `out` is then not
// a snapshot. The snapshot is untrusted: needs memory for its index, and time in proportion to its pages. Throws
// FormatError, HostError, std::bad_alloc.
std::optional<Pressed> recompress(const ByteSource& source, int out);

} // namespace kvmserver
