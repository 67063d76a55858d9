#include "src/ops/import.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <array>

#include "src/snapshot/format.hpp"
#include "src/snapshot/reader.hpp"
#include "src/store/snapshots/importer.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/read.hpp"

namespace kvmserver::ops {
namespace {

using tinykvm::ExitCode;
using tinykvm::UserError;

tinykvm::UniqueFd open_file(const std::filesystem::path& file) {
    tinykvm::UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd)
        tinykvm::throw_errno("open " + file.string());
    return fd;
}

// Reads all of `bytes`. Throws UserError if the file has become shorter.
void read_fully(int fd, std::span<std::byte> bytes, std::uint64_t offset, const std::filesystem::path& file) {
    if (tinykvm::read_at(fd, offset, bytes, "read " + file.string()) != bytes.size())
        throw UserError(ExitCode::bad_snapshot, fmt::format("{}: it changed while it was read", file.string()));
}

} // namespace

std::vector<FilePiece> pieces_of(const std::filesystem::path& file) {
    const SnapshotReader reader = SnapshotReader::open(file);
    reader.verify();
    const tinykvm::UniqueFd fd = open_file(file);
    std::array<std::byte, format::kHeaderBytes> header_bytes;
    read_fully(fd.get(), header_bytes, 0, file);
    try {
        const format::Header header = format::decode_header(header_bytes, reader.file_bytes());
        std::vector<FilePiece> pieces{{0, format::kHeaderBytes}};
        for (const ChunkInfo& chunk : reader.chunks())
            pieces.push_back({chunk.offset, chunk.stored});
        pieces.push_back({header.metadata_at(), header.metadata.stored});
        pieces.push_back({header.index_at(), header.index.stored});
        return pieces;
    } catch (const FormatError& error) {
        throw UserError(ExitCode::bad_snapshot, fmt::format("{}: {}", file.string(), error.what()));
    }
}

Imported import_pieces(store::Store& store, int file, const std::vector<std::uint64_t>& pieces, const std::string& name,
                       std::optional<std::set<Digest>> reach) {
    store::Importer importer(store, std::move(reach));
    std::uint64_t at = 0;
    for (const std::uint64_t bytes : pieces) {
        importer.put_part(file, at, bytes, name);
        at += bytes;
    }
    auto hold = importer.commit();
    return {std::move(hold), importer.size(), importer.new_bytes()};
}

Imported import_snapshot(store::Store& store, const std::filesystem::path& file,
                         std::optional<std::set<Digest>> reach) {
    std::vector<std::uint64_t> lengths;
    for (const FilePiece& piece : pieces_of(file))
        lengths.push_back(piece.length);
    return import_pieces(store, open_file(file).get(), lengths, file.string(), std::move(reach));
}

} // namespace kvmserver::ops
