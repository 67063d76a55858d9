// Finds and removes what nothing names. The caller must hold sweeping(), except for remove_chunks().
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/store/snapshots/pin.hpp"
#include "src/store/store.hpp"

namespace kvmserver::store {

struct Leftovers {
    std::vector<std::string> paths; // files, and folders that hold files only
    std::uint64_t bytes = 0;
};

// Marks of dead processes, leftovers of imports and writers in tmp/, uploads without a row.
Leftovers find_leftovers(const Folder& folder, const Database& database, const Marks& marks);
void remove(Folder& folder, const Leftovers& leftovers);

// Chunks in chunks/ that are not in the sorted list.
std::vector<Digest> chunk_files_but(const Folder& folder, const std::vector<Digest>& known);
std::vector<Digest> known_chunks(const Database& database); // chunks of the index, sorted

// Removes those of `candidates` that the index still does not know, in batches, so that deploys wait only for
// milliseconds. Takes the sweep lock itself. Returns what was removed.
struct Removed {
    std::uint64_t chunks = 0, bytes = 0;
};
Removed remove_chunks(Store& store, const std::vector<Digest>& candidates);

} // namespace kvmserver::store
