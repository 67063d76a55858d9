// A snapshot as the store keeps it, both as rows and as a record.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/common/digest.hpp"
#include "src/store/index/database.hpp"

namespace kvmserver::store {

struct ChunkRef {
    Digest digest;
    std::uint64_t length = 0;
    bool operator==(const ChunkRef&) const = default;
};

struct SnapshotRecord {
    Digest digest;          // SHA-256 of the whole file
    std::uint64_t size = 0; // the sum of the pieces' lengths
    std::int64_t created = 0;
    std::vector<ChunkRef> pieces;
    bool operator==(const SnapshotRecord&) const = default;
};

std::string snapshot_record_path(const Digest& digest);
std::string to_record(const SnapshotRecord& snapshot);
SnapshotRecord snapshot_from_record(std::string_view file); // throws RecordError

bool has_snapshot(const Database& database, const Digest& digest);
// Throws NotFound, and IndexDamaged when the rows are inconsistent.
SnapshotRecord load_snapshot(const Database& database, const Digest& digest);
// Shares chunks that the index knows already. Call within a transaction.
void insert_snapshot(Database& database, const SnapshotRecord& snapshot);

} // namespace kvmserver::store
