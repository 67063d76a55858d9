// Reads a snapshot in the store, in place.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/store/files/hold.hpp"
#include "src/store/snapshots/checked_chunks.hpp"
#include "src/store/snapshots/piece_files.hpp"
#include "src/store/store.hpp"

namespace kvmserver::store {

struct Piece {
    Digest chunk;
    std::uint64_t offset = 0, length = 0; // in the snapshot's file
};

// Keeps the snapshot in the store while this object exists, even when its function is deleted. May outlive the Store.
// Any number of threads may use it. A damaged or missing file is a UserError (bad_snapshot) naming it.
class StoredSnapshot final : public PieceFiles {
public:
    StoredSnapshot(Store& store, const Digest& digest); // throws NotFound

    const Digest& digest() const { return hold_.digest(); }
    std::uint64_t size() const { return size_; }
    std::span<const Piece> pieces() const& { return pieces_; }
    std::span<const Piece> pieces() const&& = delete; // would dangle
    std::size_t piece_count() const override { return pieces_.size(); }
    ChunkRef piece(std::size_t number) const override { return {pieces_.at(number).chunk, pieces_.at(number).length}; }
    tinykvm::UniqueFd open_piece(std::size_t number) const override;
    // With a bucket: brings the pieces that are not on the disk, a few at once. The other functions do so when they
    // need it. Throws ChunksAway, UserError (bad_snapshot: an object is altered or gone).
    void make_local() const;
    // The same for some of them, by number.
    void bring(std::span<const std::size_t> pieces) const;
    // The pieces that the disk lacks, by number; all others stay there. Asks no bucket.
    std::vector<std::size_t> missing() const;
    // Reads any part of the snapshot's file. Throws BadValue beyond its end.
    void read(std::uint64_t offset, std::span<std::byte> bytes) const;
    // Writes the whole file to `fd` from its current offset, checking every byte.
    void export_to(int fd) const;
    // Reads all pieces but those that `checked` knows, and adds them to it.
    void check(CheckedChunks& checked) const;
    // Whether `file` has exactly these bytes at its beginning, and all files of the store are intact.
    bool holds(int file) const;

private:
    bool holds(int file, std::span<const Piece> pieces) const;
    void read_all(const std::function<void(std::span<const std::byte>)>& take) const;
    std::shared_ptr<Folder> folder_;
    std::shared_ptr<ChunkBucket> bucket_; // null: there is none
    SnapshotHold hold_;
    std::uint64_t size_ = 0;
    std::vector<Piece> pieces_;
};

} // namespace kvmserver::store
