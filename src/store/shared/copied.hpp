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
// Whether the store has this state of the entry or a newer one: that is so, too, for an entry that is unknown here and
// that would have been copied if it still existed.
bool is_older(const Database& database, const std::string& key, std::int64_t revision);
std::map<std::string, Copied> all_copied(const Database& database);
// Within a transaction. What is gone is remembered until the cluster's index is followed beyond that, so that an older
// state that arrives later is not taken for a newer one.
void note_copied(Database& database, const std::string& key, const Copied& state);
// All is copied up to here.
void note_followed(Database& database, std::int64_t revision);

} // namespace kvmserver::store
