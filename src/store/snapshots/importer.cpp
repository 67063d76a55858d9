#include "src/store/snapshots/importer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "src/common/clock.hpp"
#include "src/common/random_hex.hpp"
#include "src/store/errors.hpp"
#include "src/store/snapshots/bucket_chunks.hpp"
#include "src/store/snapshots/chunk_files.hpp"
#include "tinykvm/base/read.hpp"

namespace kvmserver::store {

namespace {

constexpr std::size_t kBlock = 256 << 10;
constexpr unsigned kSyncsAtOnce = 8;       // a disk can do many at once
constexpr std::uint64_t kAtOnce = 8 << 20; // longer pieces, which no chunk is, are read part by part, twice

using Take = std::function<void(std::span<const std::byte>)>;

// Whether the file has exactly these bytes. Cheaper than a digest.
bool holds(const Folder& folder, const std::string& path, const std::function<void(const Take&)>& read) {
    const auto file = folder.open_read(path);
    bool same = static_cast<bool>(file);
    std::uint64_t at = 0;
    tinykvm::IoBuffer there;
    if (same)
        read([&](std::span<const std::byte> bytes) {
            there.resize(bytes.size());
            same = same && tinykvm::read_at(file.get(), at, there, "read " + folder.full(path)) == bytes.size() &&
                   std::memcmp(bytes.data(), there.data(), bytes.size()) == 0;
            at += bytes.size();
        });
    return same;
}

UserError changed(const std::string& name) {
    return UserError(ExitCode::bad_snapshot, fmt::format("{}: it changed while it was read", name));
}

} // namespace

Importer::Importer(Store& store, std::optional<std::set<Digest>> reach)
    : store_(store), reach_(std::move(reach)), id_(random_hex(8)), own_folder_(fmt::format("{}/{}", kTmp, id_)),
      syncs_(kSyncsAtOnce) {
    const FileLock naming = store_.naming(); // gc removes entries of tmp/ without a living owner
    mark_.emplace(store_.shared_folder(), import_mark(id_), naming);
    store_.folder().make_folder(own_folder_);
}

Importer::~Importer() {
    try {
        store_.folder().remove_tree(own_folder_);
    } catch (...) { // gc removes the folder
    }
}

std::string Importer::own_path(const Digest& digest) const { return fmt::format("{}/{}", own_folder_, digest.hex()); }

void Importer::sync_behind(std::string path) {
    syncs_.add(
        [&folder = store_.folder(), path = std::move(path)] { folder.sync(folder.open_write(path).get(), path); });
}

void Importer::put(std::span<const std::byte> piece) {
    put(
        sha256(piece), piece.size(), [piece](const Take& take) { take(piece); }, Passes::alike);
    sum_.add(piece);
}

void Importer::put_part(int file, std::uint64_t offset, std::uint64_t length, const std::string& name) {
    buffer_.resize(static_cast<std::size_t>(length <= kAtOnce ? length : kBlock));
    const auto read = [&](std::uint64_t at) {
        const auto part =
            std::span(buffer_).first(static_cast<std::size_t>(std::min<std::uint64_t>(buffer_.size(), length - at)));
        if (tinykvm::read_at(file, offset + at, part, "read " + name) != part.size())
            throw changed(name);
        return std::span<const std::byte>(part);
    };
    if (length <= kAtOnce) {
        const auto piece = read(0);
        put(
            sha256(piece), length, [piece](const Take& take) { take(piece); }, Passes::alike);
        return sum_.add_later(buffer_);
    }
    const auto read_all = [&](const Take& take) {
        for (std::uint64_t at = 0; at < length;) {
            const auto part = read(at);
            take(part);
            at += part.size();
        }
    };
    Sha256 sum;
    read_all([&](std::span<const std::byte> bytes) {
        sum.update(bytes);
        sum_.add(bytes);
    });
    put(sum.finish(), length, read_all, Passes::may_differ);
}

// Calls `read` once for each pass over the piece.
void Importer::put(const Digest& digest, std::uint64_t length, const Read& read, Passes passes) {
    if (length == 0)
        throw BadValue("a piece of a snapshot must not be empty");
    if (!own_.contains(digest)) {
        Folder& folder = store_.folder();
        // A hard link keeps the bytes even if a gc removes the chunk's name meanwhile.
        const bool there = has_chunk(folder, digest, length);
        if (there && !holds(folder, chunk_path(digest), read))
            altered_.insert(digest); // altered on the disk: commit() replaces it
        const bool known = there && !altered_.contains(digest) && (!reach_ || reach_->contains(digest)) &&
                           folder.link(chunk_path(digest), own_path(digest));
        if (!known) {
            const auto file = folder.create(own_path(digest));
            Sha256 written;
            std::uint64_t at = 0;
            read([&](std::span<const std::byte> part) {
                folder.write(file.get(), own_path(digest), part, at);
                if (passes == Passes::may_differ)
                    written.update(part);
                at += part.size();
            });
            if (passes == Passes::may_differ && written.finish() != digest)
                throw changed("the snapshot");
            sync_behind(own_path(digest));
            new_bytes_ += length;
        }
        own_[digest] = length;
    }
    record_.size += length;
    record_.pieces.push_back({digest, length});
}

void Importer::put_known(const Digest& digest, std::uint64_t length) {
    Folder& folder = store_.folder();
    const bool ours = own_.contains(digest);
    if (!ours && ((reach_ && !reach_->contains(digest)) || !has_chunk(folder, digest, length)))
        throw MissingChunk(digest);
    // A hard link keeps the bytes even if a gc removes the chunk's name meanwhile.
    if (!ours && !folder.link(chunk_path(digest), own_path(digest)))
        return put_copy(digest, length);
    const auto file = folder.open_read(own_path(digest));
    if (!file)
        throw MissingChunk(digest);
    tinykvm::IoBuffer buffer(static_cast<std::size_t>(std::min<std::uint64_t>(length, kBlock)));
    Sha256 sum;
    for (std::uint64_t at = 0; at < length;) {
        const auto part =
            std::span(buffer).first(static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), length - at)));
        if (tinykvm::read_at(file.get(), at, part, "read " + folder.full(own_path(digest))) != part.size())
            break;
        sum.update(part);
        sum_.add(part);
        at += part.size();
    }
    if (length == 0 || sum.finish() != digest) {
        // Altered on the disk: the caller must send its bytes. sum_ has consumed the wrong ones, so commit() must fail.
        met_damage_ = true;
        if (!ours)
            folder.remove(own_path(digest));
        throw MissingChunk(digest);
    }
    own_[digest] = length;
    record_.size += length;
    record_.pieces.push_back({digest, length});
}

// For files that have the maximum number of links.
void Importer::put_copy(const Digest& digest, std::uint64_t length) {
    std::vector<std::byte> bytes;
    try {
        bytes = read_chunk(store_.folder(), digest, length);
    } catch (const UserError&) { // missing or altered: the caller must send its bytes
        throw MissingChunk(digest);
    }
    put(bytes);
}

tinykvm::UniqueFd Importer::open_piece(std::size_t number) const {
    const ChunkRef& which = record_.pieces.at(number);
    const std::string path = own_path(which.digest);
    auto file = store_.folder().open_read(path);
    if (!file || store_.folder().size_of(path) != which.length)
        throw UserError(ExitCode::bad_snapshot, fmt::format("{}: is gone", store_.folder().full(path)));
    return file;
}

void Importer::give_names(std::set<std::string>& folders) {
    Folder& folder = store_.folder();
    auto index = store_.index();
    for (const auto& [digest, length] : own_) {
        const std::string path = chunk_folder(digest);
        if (altered_.contains(digest) || !has_chunk(folder, digest, length)) {
            if (folder.make_folder(path))
                folders.insert(kChunks);
            folder.rename(own_path(digest), chunk_path(digest));
            folders.insert(path);
            continue;
        }
        // The name may come from another import that has not committed yet: then it may not be durable.
        auto known = index->prepare("SELECT 1 FROM chunk WHERE digest = ?");
        if (!known.bind(digest).step()) {
            folders.insert(path);
            folders.insert(kChunks);
        }
    }
}

Digest Importer::finish(const std::optional<Digest>& announced) {
    if (record_.pieces.empty())
        throw BadValue("a snapshot must have pieces");
    if (!finished_)
        record_.digest = sum_.finish();
    finished_ = true;
    if (announced && *announced != record_.digest)
        throw DigestMismatch("snapshot", *announced, record_.digest);
    return record_.digest;
}

SnapshotHold Importer::commit(const std::optional<Digest>& announced) {
    if (committed_)
        throw BadValue("a snapshot is committed once");
    if (met_damage_)
        throw BadValue("the import read a damaged chunk: begin a new import");
    committed_ = true;
    finish(announced);
    record_.created = now_ms();
    Folder& folder = store_.folder();
    syncs_.finish(); // before other processes can find the files by name
    const BucketUpload upload(store_, own_, [this](const Digest& digest) { return own_path(digest); });
    upload_record(store_, record_);

    const FileLock naming = store_.naming();
    Pin hold(store_.shared_folder(), snapshot_mark(record_.digest), naming);
    std::set<std::string> folders;
    give_names(folders);
    for (const std::string& path : folders)
        syncs_.add([&folder, path] { folder.sync_folder(path); });
    syncs_.finish();
    auto index = store_.index();
    Transaction transaction(*index);
    if (!has_snapshot(*index, record_.digest)) {
        insert_snapshot(*index, record_);
        folder.put(snapshot_record_path(record_.digest), to_record(record_));
        folder.sync_folder(kSnapshots);
    }
    upload.note(*index);
    transaction.commit();
    return SnapshotHold(record_.digest, std::move(hold));
}

std::vector<Digest> missing(Store& store, std::span<const ChunkRef> chunks) {
    std::vector<Digest> lacking;
    for (const ChunkRef& chunk : chunks)
        if (!has_chunk(store.folder(), chunk.digest, chunk.length))
            lacking.push_back(chunk.digest);
    return lacking;
}

} // namespace kvmserver::store
