#include "src/store/snapshots/bucket_chunks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <vector>

#include "src/common/background_work.hpp"
#include "src/common/random_hex.hpp"
#include "src/store/errors.hpp"
#include "src/store/snapshots/chunk_files.hpp"
#include "src/store/snapshots/pin.hpp"
#include "src/store/snapshots/sweep.hpp"
#include "tinykvm/base/read.hpp"

namespace kvmserver::store {

namespace {

constexpr unsigned kTransfersAtOnce = 8;
constexpr std::size_t kRemovedAtOnce = 16; // deploys wait for this many requests to the bucket at most

bool is_in_bucket(const Database& database, const Digest& chunk) {
    return database.prepare("SELECT 1 FROM chunk WHERE digest = ? AND in_bucket = 1").bind(chunk).step();
}

std::vector<std::byte> checked_bytes(const Folder& folder, const std::string& path, const Digest& chunk,
                                     std::uint64_t length) {
    const auto file = folder.open_read(path);
    std::vector<std::byte> bytes(length);
    if (!file || tinykvm::read_at(file.get(), 0, bytes, "read " + folder.full(path)) != length ||
        sha256(bytes) != chunk)
        throw UserError(ExitCode::bad_snapshot, fmt::format("{}: is altered: deploy that again", folder.full(path)));
    return bytes;
}

void fetch(Folder& folder, ChunkBucket& bucket, const ChunkRef& chunk) {
    const auto bytes = bucket.get(chunk.digest, chunk.length);
    if (!bytes || bytes->size() != chunk.length || sha256(*bytes) != chunk.digest)
        throw UserError(ExitCode::bad_snapshot,
                        fmt::format("{}: the object is {}: it is not used; deploy what needs it again",
                                    bucket.name_of(chunk.digest), bytes ? "altered" : "missing"));
    const FileLock naming = FileLock::shared(folder, kSweepLock); // gc removes entries of tmp/ without a living owner
    const std::string path = fmt::format("{}/fetched-{}", kTmp, random_hex(8));
    try {
        const auto file = folder.create(path);
        folder.write(file.get(), path, *bytes, 0);
        folder.sync(file.get(), path);
        if (folder.make_folder(chunk_folder(chunk.digest)))
            folder.sync_folder(kChunks);
        folder.rename(path, chunk_path(chunk.digest));
    } catch (const HostError&) {
        folder.remove(path);
        throw;
    }
    folder.sync_folder(chunk_folder(chunk.digest));
}

struct LocalChunk {
    Digest digest;
    std::uint64_t size = 0, used = 0;
};

// The files of all chunks.
std::vector<LocalChunk> local_chunks(const Folder& folder) {
    std::vector<LocalChunk> out;
    for (const std::string& two : folder.list(kChunks))
        for (const std::string& name : folder.list(fmt::format("{}/{}", kChunks, two)))
            if (const auto digest = chunk_named(two, name))
                out.push_back({*digest, folder.size_of(chunk_path(*digest)).value_or(0), 0});
    return out;
}

// Chunks of snapshots that somebody reads or is about to read.
std::set<Digest> held_chunks(const Folder& folder, const Database& database, const FileLock& sweeping) {
    std::set<Digest> held;
    for (const Digest& snapshot : read_marks(folder, sweeping).snapshots)
        if (has_snapshot(database, snapshot))
            for (const ChunkRef& piece : load_snapshot(database, snapshot).pieces)
                held.insert(piece.digest);
    return held;
}

} // namespace

BucketUpload::BucketUpload(Store& store, const std::map<Digest, std::uint64_t>& chunks,
                           const std::function<std::string(const Digest&)>& path, Ask ask) {
    if (!store.bucket())
        return;
    chunks_ = &chunks;
    lock_.emplace(FileLock::shared(store.folder(), kBucketLock));
    std::vector<ChunkRef> lacking;
    {
        auto index = store.index();
        for (const auto& [digest, length] : chunks)
            if (ask == Ask::all || !is_in_bucket(*index, digest))
                lacking.push_back({digest, length});
    }
    BackgroundWork transfers(kTransfersAtOnce);
    for (const ChunkRef& chunk : lacking)
        transfers.add([&store, &path, chunk] {
            if (!store.bucket()->has(chunk.digest, chunk.length))
                store.bucket()->put(chunk.digest,
                                    checked_bytes(store.folder(), path(chunk.digest), chunk.digest, chunk.length));
            store.bucket()->note_use(chunk.digest);
        });
    transfers.finish();
}

void BucketUpload::note(Database& database) const {
    if (chunks_)
        for (const auto& [digest, length] : *chunks_)
            note_in_bucket(database, digest);
}

void upload_snapshot(Store& store, const Digest& snapshot, BucketUpload::Ask ask) {
    if (!store.bucket())
        return;
    std::map<Digest, std::uint64_t> chunks;
    const SnapshotRecord record = load_snapshot(*store.index(), snapshot);
    for (const ChunkRef& piece : record.pieces)
        chunks.emplace(piece.digest, piece.length);
    const BucketUpload upload(store, chunks, chunk_path, ask);
    upload_record(store, record);
    auto index = store.index();
    Transaction transaction(*index);
    upload.note(*index);
    transaction.commit();
}

void upload_record(Store& store, const SnapshotRecord& snapshot) {
    if (store.shared() && store.bucket() && !store.bucket()->has_record(snapshot.digest))
        store.bucket()->put_record(snapshot.digest, to_record(snapshot));
}

void note_in_bucket(Database& database, const Digest& chunk) {
    database.prepare("UPDATE chunk SET in_bucket = 1 WHERE digest = ? AND in_bucket = 0").bind(chunk).run();
}

void fetch_missing(Folder& folder, ChunkBucket& bucket, std::span<const ChunkRef> chunks) {
    std::set<Digest> named;
    std::vector<ChunkRef> lacking;
    for (const ChunkRef& chunk : chunks) {
        bucket.note_use(chunk.digest);
        if (!has_chunk(folder, chunk.digest, chunk.length) && named.insert(chunk.digest).second)
            lacking.push_back(chunk);
    }
    if (lacking.size() == 1) // needs no other thread
        return fetch(folder, bucket, lacking.front());
    BackgroundWork transfers(kTransfersAtOnce);
    for (const ChunkRef& chunk : lacking)
        transfers.add([&folder, &bucket, chunk] { fetch(folder, bucket, chunk); });
    transfers.finish();
}

std::uint64_t upload_older(Store& store, const std::function<bool()>& stop,
                           const std::function<void(const std::string&)>& tell) {
    constexpr std::size_t kTold = 1024;
    if (store.folder().size_of(kCluster)) // what functions have is there, and the rest is not wanted
        return 0;
    std::vector<ChunkRef> older;
    {
        auto index = store.index();
        auto rows = index->prepare("SELECT digest, size FROM chunk WHERE in_bucket = 0 ORDER BY id");
        while (rows.step())
            older.push_back({rows.digest(0), rows.natural(1)});
    }
    std::uint64_t done = 0;
    for (std::size_t begin = 0; begin < older.size() && !stop(); begin += kTransfersAtOnce) {
        const FileLock named = FileLock::shared(store.folder(), kBucketLock);
        const std::size_t end = std::min(begin + kTransfersAtOnce, older.size());
        std::vector<std::atomic<bool>> there(end - begin);
        BackgroundWork transfers(kTransfersAtOnce);
        for (std::size_t i = begin; i < end; ++i)
            transfers.add([&, i] {
                const ChunkRef& chunk = older[i];
                try {
                    if (!store.bucket()->has(chunk.digest, chunk.length))
                        store.bucket()->put(chunk.digest, checked_bytes(store.folder(), chunk_path(chunk.digest),
                                                                        chunk.digest, chunk.length));
                    there[i - begin] = true;
                } catch (const ChunksAway&) {
                    throw;
                } catch (const UserError& error) { // gc removed it, or verify has to tell what needs it
                    if (has_chunk(store.folder(), chunk.digest, chunk.length))
                        tell(error.what());
                }
            });
        transfers.finish();
        auto index = store.index();
        Transaction transaction(*index);
        for (std::size_t i = begin; i < end; ++i)
            if (there[i - begin]) {
                note_in_bucket(*index, older[i].digest);
                ++done;
            }
        transaction.commit();
        if (end / kTold > begin / kTold && end < older.size())
            tell(fmt::format("{} of {} chunks that were deployed before are in the bucket", done, older.size()));
    }
    if (!older.empty() && !stop())
        tell(fmt::format("{} of {} chunks that were deployed before are in the bucket; that is all", done,
                         older.size()));
    return done;
}

BucketChange shrink_cache(Store& store, std::uint64_t limit) {
    constexpr std::size_t kBatch = 256;
    Folder& folder = store.folder();
    std::vector<LocalChunk> chunks = local_chunks(folder);
    std::uint64_t bytes = 0;
    for (LocalChunk& chunk : chunks) {
        bytes += chunk.size;
        chunk.used = store.bucket()->last_use(chunk.digest);
    }
    BucketChange removed;
    if (bytes <= limit)
        return removed;
    std::ranges::sort(chunks, {}, &LocalChunk::used);
    for (std::size_t begin = 0; begin < chunks.size() && bytes > limit; begin += kBatch) {
        const FileLock sweeping = store.sweeping(); // nobody begins to hold a snapshot meanwhile
        auto index = store.index();
        const std::set<Digest> held = held_chunks(folder, *index, sweeping);
        for (std::size_t i = begin; i < std::min(begin + kBatch, chunks.size()) && bytes > limit; ++i) {
            const LocalChunk& chunk = chunks[i];
            if (held.contains(chunk.digest) || !is_in_bucket(*index, chunk.digest) ||
                !folder.remove(chunk_path(chunk.digest)))
                continue;
            bytes -= chunk.size;
            ++removed.chunks;
            removed.bytes += chunk.size;
        }
    }
    return removed;
}

std::uint64_t collect_bucket(Store& store, bool dry_run) {
    std::vector<Digest> unnamed;
    const auto is_named = [&store](const Digest& chunk) {
        return store.index()->prepare("SELECT 1 FROM chunk WHERE digest = ?").bind(chunk).step();
    };
    store.bucket()->list([&](const Digest& chunk) {
        if (!is_named(chunk))
            unnamed.push_back(chunk);
    });
    if (dry_run)
        return unnamed.size();
    std::uint64_t removed = 0;
    for (std::size_t begin = 0; begin < unnamed.size(); begin += kRemovedAtOnce) {
        const FileLock alone = FileLock::exclusive(store.folder(), kBucketLock); // no deploy counts on them meanwhile
        for (std::size_t i = begin; i < std::min(begin + kRemovedAtOnce, unnamed.size()); ++i)
            if (!is_named(unnamed[i])) {
                store.bucket()->remove(unnamed[i]);
                ++removed;
            }
    }
    return removed;
}

} // namespace kvmserver::store
