#include "src/store/snapshots/snapshot_record.hpp"

#include <fmt/format.h>

#include "src/store/errors.hpp"
#include "src/store/files/folder.hpp"
#include "src/store/files/record_json.hpp"

namespace kvmserver::store {

namespace {

// The sum of the lengths; 0 if a length is 0 or no file can be that long.
std::uint64_t total(const std::vector<ChunkRef>& pieces) {
    std::uint64_t sum = 0;
    for (const ChunkRef& piece : pieces) {
        if (piece.length == 0 || piece.length > std::uint64_t{INT64_MAX} - sum)
            return 0;
        sum += piece.length;
    }
    return sum;
}

} // namespace

std::string snapshot_record_path(const Digest& digest) { return fmt::format("{}/{}.json", kSnapshots, digest.hex()); }

std::string to_record(const SnapshotRecord& snapshot) {
    Json pieces = Json::array();
    for (const ChunkRef& piece : snapshot.pieces)
        pieces.push_back(Json::array({piece.digest.hex(), piece.length}));
    const Json json{{"digest", snapshot.digest.hex()},
                    {"size", snapshot.size},
                    {"created", snapshot.created},
                    {"pieces", std::move(pieces)}};
    return seal_record("snapshot", json.dump());
}

SnapshotRecord snapshot_from_record(std::string_view file) {
    const Json json = parse_record(open_record("snapshot", file));
    SnapshotRecord snapshot{digest_field(json, "digest"), natural_field(json, "size"), time_field(json, "created"), {}};
    for (const Json& piece : list_field(json, "pieces")) {
        row(piece, 2, "pieces");
        snapshot.pieces.push_back({digest(piece[0], "pieces"), natural(piece[1], "pieces")});
    }
    if (snapshot.size == 0 || total(snapshot.pieces) != snapshot.size)
        throw RecordError("has pieces that do not make up its size");
    return snapshot;
}

bool has_snapshot(const Database& database, const Digest& digest) {
    return database.prepare("SELECT 1 FROM snapshot WHERE digest = ?").bind(digest).step();
}

SnapshotRecord load_snapshot(const Database& database, const Digest& digest) {
    auto found = database.prepare("SELECT id, size, created FROM snapshot WHERE digest = ?");
    if (!found.bind(digest).step())
        throw NotFound(fmt::format("snapshot {} is not in the store: deploy or push it first", digest.hex()));
    SnapshotRecord snapshot{digest, found.natural(1), found.integer(2), {}};
    auto pieces = database.prepare("SELECT chunk.digest, chunk.size FROM piece JOIN chunk ON chunk.id = piece.chunk "
                                   "WHERE piece.snapshot = ? ORDER BY piece.place");
    pieces.bind(found.integer(0));
    while (pieces.step())
        snapshot.pieces.push_back({pieces.digest(0), pieces.natural(1)});
    if (snapshot.size == 0 || total(snapshot.pieces) != snapshot.size)
        database.damaged(fmt::format("the pieces of snapshot {} do not make up its size", digest.hex()));
    return snapshot;
}

void insert_snapshot(Database& database, const SnapshotRecord& snapshot) {
    database.prepare("INSERT INTO snapshot (digest, size, created) VALUES (?, ?, ?)")
        .bind(snapshot.digest)
        .bind(snapshot.size)
        .bind(snapshot.created)
        .run();
    const std::int64_t id = database.last_id();
    // If the row has another size, it is replaced: `length` is the size of real bytes.
    auto chunk =
        database.prepare("INSERT INTO chunk (digest, size) VALUES (?, ?) "
                         "ON CONFLICT (digest) DO UPDATE SET size = excluded.size WHERE size <> excluded.size");
    auto piece = database.prepare("INSERT INTO piece (snapshot, place, chunk) "
                                  "SELECT ?, ?, id FROM chunk WHERE digest = ?");
    for (std::size_t i = 0; i < snapshot.pieces.size(); ++i) {
        chunk.bind(snapshot.pieces[i].digest).bind(snapshot.pieces[i].length).run();
        piece.bind(id).bind(std::uint64_t{i}).bind(snapshot.pieces[i].digest).run();
    }
}

} // namespace kvmserver::store
