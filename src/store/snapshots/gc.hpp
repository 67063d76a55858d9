// Removing what nobody needs.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/store/store.hpp"

namespace kvmserver::store {

struct GcOptions {
    // Of each function the newest ones, and those that are live. Nothing: as many as `function.versions.keep`
    // in the manifest of its newest version; all when that says nothing.
    std::optional<unsigned> keep_versions;
    bool dry_run = false; // only say
};

struct GcResult {
    std::uint64_t bytes = 0; // freed
    std::uint64_t versions = 0, snapshots = 0, chunks = 0, leftovers = 0;
    std::vector<std::string> lines; // versions and snapshots that go, by name
};

// Runs beside deploys, imports, uploads and servers of any process. What is removed: versions (as told),
// snapshots that no version names and nobody holds, chunks that no snapshot names, and what dead processes
// left behind. There is no grace period: what is about to be named is protected by locks (pin.hpp,
// importer.hpp).
GcResult gc(Store& store, const GcOptions& options = {});

// Only the last of these: marks and temporary files of dead processes, uploads without a row. For when a server starts,
// also after a crash. Nothing that an index which is rebuilt could need. Returns how many.
std::size_t remove_leftovers(Store& store);

} // namespace kvmserver::store
