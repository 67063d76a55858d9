// Nodes of a cluster that shall get no more requests: the entries drained/NODE of its index, and a copy of them in the
// table `drained`, so that a node knows it when the index is away, too.
#pragma once
#include <cstdint>
#include <string>

#include "src/store/index/database.hpp"

namespace kvmserver::store {

bool is_drained(const Database& database, const std::string& node);

// Whether there is an entry with this key at this revision, as the index says. Older ones change nothing.
void copy_drained(Database& database, const std::string& key, std::int64_t revision, bool there);

} // namespace kvmserver::store
