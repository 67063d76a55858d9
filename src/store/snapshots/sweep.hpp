// Finding and removing what nothing names. The caller is sweeping() in all of these.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/store/snapshots/pin.hpp"
#include "src/store/store.hpp"

namespace kvmserver::store {

struct Rubbish {
    std::vector<std::string> paths; // files, and folders of files
    std::uint64_t bytes = 0;
};

// Dead marks, what imports and writers that died left in tmp/, uploads without a row.
Rubbish find_leftovers(const Folder& folder, const Database& database, const Marks& marks);
void remove(Folder& folder, const Rubbish& rubbish);

// Files in chunks/ that are named as chunks and are not in the sorted list.
std::vector<Digest> chunk_files_but(const Folder& folder, const std::vector<Digest>& known);
std::vector<Digest> known_chunks(const Database& database); // of the index, sorted

// Removes those of `candidates` that the index still does not know, a batch at a time, so that deploys wait
// for milliseconds only. Takes the sweep lock itself. Returns what was removed.
struct Removed {
    std::uint64_t chunks = 0, bytes = 0;
};
Removed remove_chunks(Store& store, const std::vector<Digest>& candidates);

} // namespace kvmserver::store
