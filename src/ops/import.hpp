// Imports snapshot files into the store, cut into pieces.
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

// Checks the whole snapshot and returns its pieces, in the order of the file and without gaps. Throws UserError
// (bad_snapshot).
std::vector<FilePiece> pieces_of(const std::filesystem::path& file);

struct Imported {
    store::SnapshotHold hold;
    std::uint64_t bytes = 0, new_bytes = 0;
};

// Checks the whole snapshot and stores its pieces. `reach`: see store::Importer. Throws UserError (bad_snapshot).
Imported import_snapshot(store::Store& store, const std::filesystem::path& file,
                         std::optional<std::set<Digest>> reach = {});
// Stores a snapshot that was examined already. `pieces` are the lengths of all its pieces, in order. `name` is for
// messages. Throws UserError (bad_snapshot) if the file has changed since.
Imported import_pieces(store::Store& store, int file, const std::vector<std::uint64_t>& pieces, const std::string& name,
                       std::optional<std::set<Digest>> reach = {});

} // namespace kvmserver::ops
