// A snapshot file and the pieces that it is kept in.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/store/files/hold.hpp"

namespace kvmserver::ops {

struct FilePiece {
    std::uint64_t offset = 0, length = 0;
};

// Checks the snapshot in full and says how it is cut: in the order of the file, nothing left out. Throws
// UserError (bad_snapshot).
std::vector<FilePiece> pieces_of(const std::filesystem::path& file);

struct Imported {
    store::SnapshotHold hold;
    std::uint64_t bytes = 0, new_bytes = 0;
};

// Checks the snapshot in full, and brings it into the store cut into its pieces. Throws UserError
// (bad_snapshot). `reach` is as for store::Importer.
Imported import_snapshot(store::Store& store, const std::filesystem::path& file,
                         std::optional<std::set<Digest>> reach = {});
// Brings one into the store that has been examined: `pieces` are the lengths of its pieces, in order, and make up the
// file. `name` is for messages. Throws UserError (bad_snapshot) when it was changed since.
Imported import_pieces(store::Store& store, int file, const std::vector<std::uint64_t>& pieces, const std::string& name,
                       std::optional<std::set<Digest>> reach = {});

} // namespace kvmserver::ops
