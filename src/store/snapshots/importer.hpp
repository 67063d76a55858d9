// Imports a snapshot file into the store, piece by piece.
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

#include "src/common/background_sha256.hpp"
#include "src/common/background_work.hpp"
#include "src/store/files/hold.hpp"
#include "src/store/snapshots/piece_files.hpp"
#include "src/store/snapshots/snapshot_record.hpp"
#include "src/store/store.hpp"
#include "tinykvm/base/io_buffer.hpp"

namespace kvmserver::store {

// The concatenated pieces are the file. Until commit() they lie in a folder of the import, new ones as files and known
// ones as hard links, so that gc cannot remove them. What is not committed is removed by the destructor or, if the
// process dies, by the next gc. Not thread-safe.
class Importer final : public PieceFiles {
public:
    // `reach`: the chunks of whose existence the importing user may learn; nullopt: all. Other chunks are written as if
    // the store did not have them, and deduplicated only by commit().
    explicit Importer(Store& store, std::optional<std::set<Digest>> reach = {});
    ~Importer() override;
    Importer(const Importer&) = delete;
    Importer& operator=(const Importer&) = delete;

    // Adds a piece. Its bytes are written only if the store does not have them. Throws BadValue if it is empty.
    void put(std::span<const std::byte> piece);
    // The same for a range of a file, of any length, which must not change meanwhile. `name` is for messages. Throws
    // UserError (bad_snapshot) if the file changed or is shorter.
    void put_part(int file, std::uint64_t offset, std::uint64_t length, const std::string& name);
    // Adds a piece that the store has and that is within reach; reads and checks it once. Throws MissingChunk
    // otherwise. If the chunk exists but is altered, the import cannot be committed after that.
    void put_known(const Digest& digest, std::uint64_t length);

    // The pieces put so far, in order. They can be read before commit().
    std::size_t piece_count() const override { return record_.pieces.size(); }
    ChunkRef piece(std::size_t number) const override { return record_.pieces.at(number); }
    tinykvm::UniqueFd open_piece(std::size_t number) const override;

    // No piece may be put after this. Returns the digest of the file. Throws DigestMismatch, BadValue (no pieces).
    Digest finish(const std::optional<Digest>& announced = {});
    // Everything is durable and in the index when it returns, and in the store's bucket if it has one (ChunksAway).
    // Calls finish() if that has not been done; throws likewise.
    SnapshotHold commit(const std::optional<Digest>& announced = {});

    std::uint64_t size() const { return record_.size; }
    std::uint64_t new_bytes() const { return new_bytes_; } // bytes of pieces that were not there or not within reach

private:
    std::string own_path(const Digest& digest) const;
    void sync_behind(std::string path);
    using Take = std::function<void(std::span<const std::byte>)>;
    using Read = std::function<void(const Take&)>; // passes on a whole piece, part by part
    enum class Passes { alike, may_differ };       // over a piece: whether its bytes may change meanwhile
    void put(const Digest& digest, std::uint64_t length, const Read& read, Passes passes);
    void put_copy(const Digest& digest, std::uint64_t length);
    void give_names(std::set<std::string>& folders);

    Store& store_;
    const std::optional<std::set<Digest>> reach_;
    std::string id_, own_folder_;
    std::optional<Pin> mark_;
    BackgroundSha256 sum_; // of all pieces put
    BackgroundWork syncs_; // of new files
    SnapshotRecord record_;
    std::map<Digest, std::uint64_t> own_; // files in our folder, with their lengths
    std::set<Digest> altered_;            // chunks whose file in the store is damaged
    tinykvm::IoBuffer buffer_;            // of put_part(), of any content between calls
    std::uint64_t new_bytes_ = 0;
    bool finished_ = false, committed_ = false;
    bool met_damage_ = false; // put_known() read a damaged chunk: sum_ is wrong
};

// The chunks that the store lacks, in the order given, for an upload to bring. gc may remove others before they are
// imported: put_known() then throws MissingChunk.
std::vector<Digest> missing(Store& store, std::span<const ChunkRef> chunks);

} // namespace kvmserver::store
