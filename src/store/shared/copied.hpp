// Which entries of the cluster's index the store has copied: the table `shared`.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "src/store/index/database.hpp"

namespace kvmserver::store {

struct Copied {
    std::int64_t revision = 0; // of the entry, or of its deletion; 0: it never was here
    bool gone = true;          // there is no such entry
    // What a change that builds on this must find: the revision of the entry; 0: none.
    std::int64_t expected() const { return gone ? 0 : revision; }
};

Copied copied(const Database& database, const std::string& key);
std::map<std::string, Copied> all_copied(const Database& database);
// Within a transaction. What is gone is remembered, so that an older state that arrives later is not taken for a newer
// one.
void note_copied(Database& database, const std::string& key, const Copied& state);
// The cluster's index was followed up to here: no older state arrives any more.
void forget_gone(Database& database, std::int64_t revision);

} // namespace kvmserver::store
