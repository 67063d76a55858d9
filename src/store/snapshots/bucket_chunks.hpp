// Moves chunks between the store's disk and its bucket. Transfers take their time: not for threads that others wait
// for.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "src/store/snapshots/chunk_bucket.hpp"
#include "src/store/snapshots/snapshot_record.hpp"
#include "src/store/store.hpp"

namespace kvmserver::store {

// Brings the files of an import to the bucket, a few at once and only those that it lacks. Does nothing in a store
// without a bucket. While this object exists, gc does not remove them from the bucket.
class BucketUpload {
public:
    // `chunks` with their lengths; `path`: the file in the store's folder that has a chunk's bytes. Throws ChunksAway.
    // Asks the bucket about those, too, that it is known to have had: another store may have removed them.
    enum class Ask { unknown, all };
    BucketUpload(Store& store, const std::map<Digest, std::uint64_t>& chunks,
                 const std::function<std::string(const Digest&)>& path, Ask ask = Ask::unknown);
    // Within the transaction that names the chunks.
    void note(Database& database) const;

private:
    const std::map<Digest, std::uint64_t>* chunks_ = nullptr; // null: there is no bucket
    std::optional<FileLock> lock_;
};

// The same for a snapshot that the index names already: it may have been imported by a process that does not know the
// bucket. Does nothing in a store without one. Throws ChunksAway, UserError (bad_snapshot), NotFound.
void upload_snapshot(Store& store, const Digest& snapshot, BucketUpload::Ask ask = BucketUpload::Ask::unknown);

// In a store of a cluster: the list of the snapshot's chunks, for other stores. Throws ChunksAway.
void upload_record(Store& store, const SnapshotRecord& snapshot);

// The index remembers that the bucket has it.
void note_in_bucket(Database& database, const Digest& chunk);

// Brings the chunks that the disk lacks, a few at once. The caller holds their snapshot. Each gets its name only when
// its digest has been checked. Throws ChunksAway, UserError (bad_snapshot: an object is altered or gone), HostError.
void fetch_missing(Folder& folder, ChunkBucket& bucket, std::span<const ChunkRef> chunks);

// Brings chunks to the bucket that were deployed before there was one. `stop` is asked between a few chunks, `tell`
// gets lines for the log. Returns how many are there now. Throws ChunksAway.
std::uint64_t upload_older(Store& store, const std::function<bool()>& stop,
                           const std::function<void(const std::string&)>& tell);

struct BucketChange {
    std::uint64_t chunks = 0, bytes = 0;
};
// Removes the files of chunks that the bucket has and nobody holds, least recently used first, until all files of
// chunks have `limit` bytes.
BucketChange shrink_cache(Store& store, std::uint64_t limit);

// Removes the objects of chunks that the index does not name. Throws ChunksAway.
std::uint64_t collect_bucket(Store& store, bool dry_run);

} // namespace kvmserver::store
