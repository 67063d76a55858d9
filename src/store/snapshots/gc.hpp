// Garbage collection.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/store/functions/event.hpp"
#include "src/store/store.hpp"

namespace kvmserver::store {

struct GcOptions {
    // Number of newest versions to keep of each function, besides live ones. nullopt: `function.versions.keep` in the
    // manifest of its newest version; all if that is not set.
    std::optional<unsigned> keep_versions;
    bool dry_run = false; // only report
    Author author = {};   // for the history of functions that lose versions
};

struct GcResult {
    std::uint64_t bytes = 0; // bytes freed
    std::uint64_t versions = 0, snapshots = 0, chunks = 0, leftovers = 0;
    std::vector<std::string> lines; // names of versions and snapshots that are removed
};

// Runs concurrently with deploys, imports, uploads and servers of any process. It removes: versions (see GcOptions),
// snapshots that no version names and nobody holds, chunks that no snapshot names, states that no machine goes on from,
// and leftovers of dead processes.
// There is no grace period: files that are about to be named are protected by locks (pin.hpp, importer.hpp).
GcResult gc(Store& store, const GcOptions& options = {});

// Removes a snapshot that no version names and nobody holds, with the chunks that only it has. Returns false if it
// stays, also because the store was busy for a second; true also if there is none.
bool remove_snapshot(Store& store, const Digest& digest);

// Removes only leftovers: marks and temporary files of dead processes, uploads without a row. For the start of a
// server, also after a crash. Never removes what a rebuild of the index could need. Returns the number removed.
std::size_t remove_leftovers(Store& store);

} // namespace kvmserver::store
