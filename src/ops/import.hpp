// Imports snapshot files into the store, cut into pieces.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/common/digest.hpp"
#include "src/snapshot/reader.hpp"
#include "src/store/files/hold.hpp"

namespace kvmserver::ops {

// A regular file and its digest, which a thread computes from now on.
class DigestedFile {
public:
    enum class Origin {
        unknown,
        made_now,        // no store can have it: the digest is computed when it is asked for
        made_in_a_hurry, // the same; a daemon will read all of it again, to compress it harder
    };
    // Throws UserError.
    DigestedFile(const std::filesystem::path& path, Origin origin = Origin::unknown); // NOLINT: a path is as good
    Origin origin() const { return origin_; }
    const std::filesystem::path& path() const { return path_; }
    std::uint64_t bytes() const { return bytes_; }
    Digest digest() const { return digest_.get(); } // waits for it; throws HostError

private:
    std::filesystem::path path_;
    Origin origin_;
    std::uint64_t bytes_ = 0;
    std::shared_future<Digest> digest_;
};

struct FilePiece {
    std::uint64_t offset = 0, length = 0;
};

// A snapshot file and its pieces. Each chunk is a piece. Decompressing all of them takes most of the time of a deploy,
// so verify() is for those that the store does not have: the others were verified when they came.
class CutFile {
public:
    // Checks everything except the content of the chunks. Throws UserError (bad_snapshot).
    explicit CutFile(const std::filesystem::path& file);
    // In the order of the file and without gaps.
    const std::vector<FilePiece>& pieces() const { return pieces_; }
    // Checks the content of a piece. Throws UserError (bad_snapshot).
    void verify(std::size_t piece) const;

private:
    SnapshotReader reader_;
    std::vector<FilePiece> pieces_;
};

struct Imported {
    store::SnapshotHold hold;
    std::uint64_t bytes = 0, new_bytes = 0;
};

using Progress = std::function<void(std::uint64_t done, std::uint64_t all)>; // bytes

// Checks the snapshot and stores its pieces. Pieces that the store has are only compared with it. The contents of
// chunks that were made in a hurry are left to who reads them. Throws UserError (bad_snapshot).
Imported import_snapshot(store::Store& store, const DigestedFile& file, const Progress& progress = {});
// Stores a snapshot that was examined already. `pieces` are the lengths of all its pieces, in order. `name` is for
// messages. Throws UserError (bad_snapshot) if the file has changed since.
Imported import_pieces(store::Store& store, int file, const std::vector<std::uint64_t>& pieces, const std::string& name,
                       std::optional<std::set<Digest>> reach = {});

} // namespace kvmserver::ops
