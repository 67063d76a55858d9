// Streaming check of untrusted metadata: as strict as decode_metadata, but keeps at most one element of each list in
// memory and does not decompress the contents of handles that follow the JSON.
#pragma once
#include "src/snapshot/metadata.hpp"
#include "src/snapshot/section_stream.hpp"

namespace kvmserver {

inline constexpr std::size_t kWalkedListeners = 64;

// Returns the state without its lists, but for up to kWalkedListeners listeners, and up to 64 KiB of late variables,
// without their places. Throws FormatError for everything that decode_metadata rejects, except errors in contents that
// have a valid checksum. Also rejects duplicate names, of which decode_metadata takes the last.
Metadata walk_metadata(SectionStream& section);

} // namespace kvmserver
