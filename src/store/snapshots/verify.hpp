// Checks a whole store and repairs what can be repaired.
#pragma once
#include <cstdint>
#include <filesystem>

#include "src/store/report.hpp"
#include "src/store/store.hpp"

namespace kvmserver::store {

struct VerifyOptions {
    bool repair = true;
    bool read_chunks = true; // false: check only their sizes
    StoreOptions store;
};

struct VerifyReport {
    Findings findings;
    std::uint64_t functions = 0, versions = 0, snapshots = 0, chunks = 0, bytes = 0; // bytes: size of all chunks
    // Whether nothing is wrong (any more). Repaired leftovers of dead processes do not count as errors.
    bool clean() const {
        return !has_kind(findings, Finding::Kind::broken) && !has_kind(findings, Finding::Kind::repairable);
    }
};

// Runs concurrently with everything else. Only rebuilding the index needs exclusive use of the store (UserError,
// conflict).
VerifyReport verify(const std::filesystem::path& path, const VerifyOptions& options = {});

// --- parts of verify()

// Compares the chunks of the index with their files; finds files without a row.
void verify_chunks(Store& store, const VerifyOptions& options, VerifyReport& report);
// Compares rows with records, both ways; finds leftovers; checks uploads.
void verify_records(Store& store, const VerifyOptions& options, VerifyReport& report);

} // namespace kvmserver::store
