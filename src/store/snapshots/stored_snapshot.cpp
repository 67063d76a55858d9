#include "src/store/snapshots/stored_snapshot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <future>

#include "src/store/errors.hpp"
#include "src/store/snapshots/bucket_chunks.hpp"
#include "src/store/snapshots/chunk_files.hpp"
#include "src/store/snapshots/snapshot_record.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/io_buffer.hpp"
#include "tinykvm/base/read.hpp"
#include "tinykvm/base/write.hpp"

namespace kvmserver::store {

namespace {

constexpr std::size_t kCompared = 256 << 10;

SnapshotHold hold_of(Store& store, const Digest& digest) {
    auto hold = SnapshotHold::take(store, digest);
    if (!hold)
        throw NotFound(fmt::format("snapshot {} is not in the store: deploy or push it first", digest.hex()));
    return std::move(*hold);
}

} // namespace

StoredSnapshot::StoredSnapshot(Store& store, const Digest& digest)
    : folder_(store.shared_folder()), bucket_(store.bucket()), hold_(hold_of(store, digest)) {
    auto index = store.index();
    const Transaction same_moment(*index, Transaction::Kind::read);
    const SnapshotRecord record = load_snapshot(*index, digest);
    for (const ChunkRef& chunk : record.pieces) {
        pieces_.push_back({chunk.digest, size_, chunk.length});
        size_ += chunk.length;
    }
}

void StoredSnapshot::make_local() const {
    if (!bucket_)
        return;
    std::vector<ChunkRef> all;
    for (const Piece& piece : pieces_)
        all.push_back({piece.chunk, piece.length});
    fetch_missing(*folder_, *bucket_, all);
}

void StoredSnapshot::bring(std::span<const std::size_t> pieces) const {
    if (!bucket_)
        return;
    std::vector<ChunkRef> some;
    for (const std::size_t number : pieces)
        some.push_back(piece(number));
    fetch_missing(*folder_, *bucket_, some);
}

std::vector<std::size_t> StoredSnapshot::missing() const {
    std::vector<std::size_t> out;
    for (std::size_t i = 0; bucket_ && i < pieces_.size(); ++i) {
        bucket_->note_use(pieces_[i].chunk);
        if (!has_chunk(*folder_, pieces_[i].chunk, pieces_[i].length))
            out.push_back(i);
    }
    return out;
}

tinykvm::UniqueFd StoredSnapshot::open_piece(std::size_t piece) const {
    const Piece& which = pieces_.at(piece);
    if (bucket_ && !has_chunk(*folder_, which.chunk, which.length))
        make_local();
    return open_chunk(*folder_, which.chunk, which.length);
}

void StoredSnapshot::read(std::uint64_t offset, std::span<std::byte> bytes) const {
    if (offset > size_ || bytes.size() > size_ - offset)
        throw BadValue("reading beyond the end of a snapshot");
    auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), offset,
                                  [](std::uint64_t at, const Piece& p) { return at < p.offset; }) -
                 pieces_.begin() - 1;
    while (!bytes.empty()) {
        const Piece& from = pieces_[static_cast<std::size_t>(piece)];
        const auto file = open_piece(static_cast<std::size_t>(piece++));
        const std::uint64_t skipped = offset - from.offset;
        const auto part =
            bytes.first(static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), from.length - skipped)));
        const std::string path = folder_->full(chunk_path(from.chunk));
        if (tinykvm::read_at(file.get(), skipped, part, "read " + path) != part.size())
            throw UserError(ExitCode::bad_snapshot, fmt::format("{}: is cut short: deploy what needs it again", path));
        offset += part.size();
        bytes = bytes.subspan(part.size());
    }
}

void StoredSnapshot::export_to(int fd) const {
    read_all([fd](std::span<const std::byte> bytes) { tinykvm::write_all(fd, bytes, "the snapshot"); });
}

void StoredSnapshot::check(CheckedChunks& checked) const {
    make_local();
    for (const Piece& piece : pieces_) {
        const auto file = open_chunk(*folder_, piece.chunk, piece.length);
        struct stat status {};
        if (::fstat(file.get(), &status) < 0)
            tinykvm::throw_errno("stat " + folder_->full(chunk_path(piece.chunk)));
        const FileStamp before = FileStamp::of(status);
        if (checked.knows(piece.chunk, before))
            continue;
        read_chunk(*folder_, piece.chunk, piece.length, [](std::span<const std::byte>) {});
        checked.note(piece.chunk, before);
    }
}

bool StoredSnapshot::holds(int file) const {
    const std::size_t half =
        static_cast<std::size_t>(std::ranges::lower_bound(pieces_, size_ / 2, {}, &Piece::offset) - pieces_.begin());
    auto second = std::async(std::launch::async, [&] { return holds(file, std::span(pieces_).subspan(half)); });
    return holds(file, std::span(pieces_).first(half)) && second.get();
}

bool StoredSnapshot::holds(int file, std::span<const Piece> pieces) const {
    tinykvm::IoBuffer here(kCompared), there(kCompared);
    for (const Piece& piece : pieces) {
        const std::string path = chunk_path(piece.chunk);
        const auto stored = folder_->open_read(path);
        if (!stored || folder_->size_of(path) != piece.length)
            return false;
        for (std::uint64_t at = 0; at < piece.length;) {
            const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(kCompared, piece.length - at));
            const auto ours = std::span(here).first(count), theirs = std::span(there).first(count);
            if (tinykvm::read_at(stored.get(), at, ours, "read " + folder_->full(path)) != count ||
                tinykvm::read_at(file, piece.offset + at, theirs, "read a snapshot") != count ||
                std::memcmp(ours.data(), theirs.data(), count) != 0)
                return false;
            at += count;
        }
    }
    return true;
}

void StoredSnapshot::read_all(const std::function<void(std::span<const std::byte>)>& take) const {
    make_local();
    Sha256 sum;
    for (const Piece& piece : pieces_) {
        read_chunk(*folder_, piece.chunk, piece.length, [&](std::span<const std::byte> bytes) {
            sum.update(bytes);
            take(bytes);
        });
    }
    if (const Digest actual = sum.finish(); actual != digest())
        throw DigestMismatch("snapshot " + digest().hex(), digest(), actual);
}

} // namespace kvmserver::store
