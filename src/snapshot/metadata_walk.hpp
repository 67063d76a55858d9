// The metadata of a file that strangers made: as strict as decode_metadata, but of its lists no more than one element
// is in memory, and the contents of handles behind the JSON are not inflated at all.
#pragma once
#include "src/snapshot/metadata.hpp"
#include "src/snapshot/section_stream.hpp"

namespace kvmserver {

// The state without its lists. What decode_metadata would find wrong throws FormatError, but for what is wrong with the
// bytes of contents behind their checksum. A name that comes twice is refused here (there the last one counts).
Metadata walk_metadata(SectionStream& section);

} // namespace kvmserver
