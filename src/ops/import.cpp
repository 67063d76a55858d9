#include "src/ops/import.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <thread>

#include "src/common/background_work.hpp"
#include "src/ops/known_digests.hpp"
#include "src/snapshot/format.hpp"
#include "src/store/snapshots/importer.hpp"
#include "src/store/snapshots/stored_snapshot.hpp"
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

Digest known_or_read(const std::filesystem::path& path) {
    const tinykvm::UniqueFd file = open_file(path);
    struct stat status {};
    if (::fstat(file.get(), &status) < 0)
        tinykvm::throw_errno("stat " + path.string());
    const FileStamp before = FileStamp::of(status);
    const FolderCache cache(default_cache_folder());
    if (const auto known = known_digest(cache, before))
        return *known;
    const Digest digest = sha256_of_file(file.get(), path.string());
    note_digest(cache, before, digest);
    return digest;
}

// Reads all of `bytes`. Throws UserError if the file has become shorter.
void read_fully(int fd, std::span<std::byte> bytes, std::uint64_t offset, const std::filesystem::path& file) {
    if (tinykvm::read_at(fd, offset, bytes, "read " + file.string()) != bytes.size())
        throw UserError(ExitCode::bad_snapshot, fmt::format("{}: it changed while it was read", file.string()));
}

} // namespace

DigestedFile::DigestedFile(const std::filesystem::path& path, Origin origin)
    : path_(path), origin_(origin), bytes_(open_file_source(path)->size()),
      digest_(origin == Origin::unknown ? std::async(std::launch::async, [path] { return known_or_read(path); })
                                        : std::async(std::launch::deferred, [path] {
                                              return sha256_of_file(open_file(path).get(), path.string());
                                          })) {}

CutFile::CutFile(const std::filesystem::path& file) : reader_(SnapshotReader::open(file)) {
    const tinykvm::UniqueFd fd = open_file(file);
    std::array<std::byte, format::kHeaderBytes> header_bytes;
    read_fully(fd.get(), header_bytes, 0, file);
    try {
        const format::Header header = format::decode_header(header_bytes, reader_.file_bytes());
        pieces_.push_back({0, format::kHeaderBytes});
        for (const ChunkInfo& chunk : reader_.chunks())
            pieces_.push_back({chunk.offset, chunk.stored});
        pieces_.push_back({header.metadata_at(), header.metadata.stored});
        pieces_.push_back({header.index_at(), header.index.stored});
    } catch (const FormatError& error) {
        throw UserError(ExitCode::bad_snapshot, fmt::format("{}: {}", file.string(), error.what()));
    }
}

void CutFile::verify(std::size_t piece) const {
    constexpr std::size_t kFirstChunk = 1; // behind the header
    if (piece >= kFirstChunk && piece - kFirstChunk < reader_.chunks().size())
        reader_.verify(piece - kFirstChunk);
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

Imported import_snapshot(store::Store& store, const DigestedFile& digested, const Progress& progress) {
    const std::filesystem::path& path = digested.path();
    const tinykvm::UniqueFd file = open_file(path);
    // First the usual case of a deploy that changes nothing but the function: the store has this very file.
    if (digested.origin() == DigestedFile::Origin::unknown)
        if (auto hold = store::SnapshotHold::take(store, digested.digest())) {
            const store::StoredSnapshot stored(store, hold->digest());
            if (stored.size() == digested.bytes() && stored.holds(file.get()))
                return {std::move(*hold), stored.size(), 0};
        }
    const CutFile cut(path);
    store::Importer importer(store);
    BackgroundWork verifier(std::clamp(std::thread::hardware_concurrency(), 1u, 4u));
    for (std::size_t i = 0; i < cut.pieces().size(); ++i) {
        const std::uint64_t known = importer.new_bytes();
        importer.put_part(file.get(), cut.pieces()[i].offset, cut.pieces()[i].length, path.string());
        if (importer.new_bytes() != known && digested.origin() != DigestedFile::Origin::made_in_a_hurry)
            verifier.add([&cut, i] { cut.verify(i); });
        if (progress)
            progress(importer.size(), digested.bytes());
    }
    verifier.finish();
    auto hold = importer.commit();
    return {std::move(hold), importer.size(), importer.new_bytes()};
}

} // namespace kvmserver::ops
