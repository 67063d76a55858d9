// Brings into a store what others changed in the index of its cluster. All throw IndexAway, ChunksAway (the list of a
// snapshot's chunks comes from the bucket), and UserError for entries that make no sense.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/store/functions/settings_record.hpp"
#include "src/store/shared/documents.hpp"
#include "src/store/shared/shared_index.hpp"
#include "src/store/store.hpp"

namespace kvmserver::store {

// What the entry says; a UserError names it if it makes no sense.
SharedFunction function_of(const Store& store, const SharedEntry& entry);
Settings settings_of(const Store& store, const SharedEntry& entry);

// Does nothing if the store has this state or a newer one. Routes and keys that this version does not know are left
// out.
void copy_entry(Store& store, const SharedEntry& entry);
void copy_deletion(Store& store, const std::string& key, std::int64_t revision);

// The entry as all daemons see it now: before a change that builds on it. Does nothing without a SharedIndex. Throws
// Conflict if the change would lose what a newer kvmserver has written.
void catch_up(Store& store, const std::string& key);

// The same for what a change only looks at: it may have what a newer kvmserver has written.
void bring_newest(Store& store, const std::string& key);

struct CopiedAll {
    std::int64_t revision = 0; // of the cluster's index: what comes later is to be copied, too
    std::uint64_t changed = 0; // entries
    std::vector<std::string> failed;
};
// Makes the store a copy of the cluster's index: functions that this does not have are removed.
CopiedAll copy_all(Store& store);

} // namespace kvmserver::store
