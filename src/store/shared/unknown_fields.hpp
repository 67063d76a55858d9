// Fields of the cluster's entries that a newer kvmserver has added: this one serves such an entry, but a change by it
// would lose them.
#pragma once
#include <optional>
#include <string>

#include "src/store/shared/shared_index.hpp"

namespace kvmserver::store {

// The first field of the entry that this version would not write again, as "versions[2].record.colour"; nullopt: there
// is none, or the entry makes no sense, which others say.
std::optional<std::string> unknown_field(const SharedEntry& entry);

} // namespace kvmserver::store
