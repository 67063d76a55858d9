// Reads a whole store back and mends what can be mended.
#pragma once
#include <cstdint>
#include <filesystem>

#include "src/store/report.hpp"
#include "src/store/store.hpp"

namespace kvmserver::store {

struct VerifyOptions {
    bool repair = true;
    bool read_chunks = true; // false: their sizes only
    StoreOptions store;
};

struct VerifyReport {
    Findings findings;
    std::uint64_t functions = 0, versions = 0, snapshots = 0, chunks = 0, bytes = 0; // bytes: of all chunks
    // Nothing is wrong (any more). Leftovers of a process that died are repaired, and no fault.
    bool clean() const {
        return !has_kind(findings, Finding::Kind::broken) && !has_kind(findings, Finding::Kind::repairable);
    }
};

// Runs beside everything else; only an index that must be made anew needs the store for itself (UserError,
// conflict).
VerifyReport verify(const std::filesystem::path& path, const VerifyOptions& options = {});

// --- its parts

// Every chunk of the index against its file; files without a row.
void verify_chunks(Store& store, const VerifyOptions& options, VerifyReport& report);
// Rows against records, both ways; leftovers; uploads.
void verify_records(Store& store, const VerifyOptions& options, VerifyReport& report);

} // namespace kvmserver::store
