// Brings a snapshot file into the store, piece by piece.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "src/store/files/hold.hpp"
#include "src/store/snapshots/piece_files.hpp"
#include "src/store/snapshots/snapshot_record.hpp"
#include "src/store/store.hpp"

namespace kvmserver::store {

// The pieces, one after the other, are the file. Until commit() they lie in a folder of the import's own, new
// ones as files and known ones as further links, so that no gc can take them away; what is not committed goes
// with the object or, when the process dies, with the next gc. For one thread.
class Importer final : public PieceFiles {
public:
    // `reach`: the chunks that whoever imports may know to be there; nothing: all of them. Others are written
    // as if they were not, and shared with what is there only by commit().
    explicit Importer(Store& store, std::optional<std::set<Digest>> reach = {});
    ~Importer() override;
    Importer(const Importer&) = delete;
    Importer& operator=(const Importer&) = delete;

    // Its bytes are stored only when the store has them not yet. Throws BadValue for an empty one.
    void put(std::span<const std::byte> piece);
    // The same of a part of a file that nobody changes meanwhile, of any length. `name` is for messages. Throws
    // UserError (bad_snapshot) when it was changed or is shorter.
    void put_part(int file, std::uint64_t offset, std::uint64_t length, const std::string& name);
    // A piece that the store has, and that is within reach: reads and checks it, once. Throws MissingChunk,
    // after which nothing can be committed if it was there with other bytes.
    void put_known(const Digest& digest, std::uint64_t length);

    // Those that were put, in their order: they can be read before they are in the store.
    std::size_t piece_count() const override { return record_.pieces.size(); }
    ChunkRef piece(std::size_t number) const override { return record_.pieces.at(number); }
    tinykvm::UniqueFd open_piece(std::size_t number) const override;

    // Nothing more comes. Returns the digest of the file. Throws DigestMismatch, BadValue (no pieces).
    Digest finish(const std::optional<Digest>& announced = {});
    // All of it is durable and in the index when it returns. Calls finish() if nobody has. Throws as that does.
    SnapshotHold commit(const std::optional<Digest>& announced = {});

    std::uint64_t size() const { return record_.size; }
    std::uint64_t new_bytes() const { return new_bytes_; } // of pieces that were not there, or not within reach

private:
    std::string own_path(const Digest& digest) const;
    using Take = std::function<void(std::span<const std::byte>)>;
    using Read = std::function<void(const Take&)>; // gives all of a piece, part by part
    void put(std::uint64_t length, const Read& read);
    void put_copy(const Digest& digest, std::uint64_t length);
    void give_names(std::set<std::string>& folders);

    Store& store_;
    const std::optional<std::set<Digest>> reach_;
    std::string id_, own_folder_;
    std::optional<Pin> mark_;
    Sha256 sum_;
    SnapshotRecord record_;
    std::map<Digest, std::uint64_t> own_; // what lies in our folder, with its length
    std::set<Digest> written_;            // those of them that are new files
    std::set<Digest> altered_;            // chunks whose file in the store has other bytes
    std::uint64_t new_bytes_ = 0;
    bool finished_ = false, committed_ = false;
};

// Those that the store lacks, in the order given: what an upload must bring. A gc may take others away until
// they are imported: then put_known() says MissingChunk.
std::vector<Digest> missing(Store& store, std::span<const ChunkRef> chunks);

} // namespace kvmserver::store
