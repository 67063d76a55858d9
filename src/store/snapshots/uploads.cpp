#include "src/store/snapshots/uploads.hpp"

#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>

#include "src/common/clock.hpp"
#include "src/common/random_hex.hpp"
#include "src/store/errors.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::store {

using tinykvm::UniqueFd;

namespace {

constexpr std::string_view kUploadColumns = "SELECT id, size, durable, digest, created, token FROM upload ";

UploadInfo read_row(const Statement& row) {
    return {row.text(0), row.natural(1), row.natural(2), row.digest(3), row.integer(4), row.integer(5)};
}

[[noreturn]] void no_such_upload(const std::string& id) {
    throw NotFound(fmt::format("there is no upload {}: begin a new one", tinykvm::brief(id)));
}

void delete_row(Store& store, const std::string& id) {
    store.index()->prepare("DELETE FROM upload WHERE id = ?").bind(id).run();
}

} // namespace

std::string upload_path(const std::string& id) { return fmt::format("{}/{}", kUploads, id); }

UploadInfo Uploads::create(std::uint64_t size, const Digest& digest, std::int64_t token) {
    if (size == 0 || size > std::uint64_t{1} << 40)
        throw BadValue(fmt::format("upload of {} bytes: it must be 1 byte to 1 TiB", size));
    UploadInfo upload{random_hex(16), size, 0, digest, now_ms(), token};
    const FileLock naming = store_.naming(); // keeps gc away: it removes files without a row
    Folder& folder = store_.folder();
    const std::string path = upload_path(upload.id);
    { const UniqueFd file = folder.create(path); }
    try {
        folder.sync_folder(kUploads);
        store_.index()
            ->prepare("INSERT INTO upload (id, size, digest, durable, created, token) VALUES (?, ?, ?, 0, ?, ?)")
            .bind(upload.id)
            .bind(upload.size)
            .bind(upload.digest)
            .bind(upload.created)
            .bind(upload.token)
            .run();
    } catch (...) {
        try {
            folder.remove(path);
        } catch (...) { // gc removes the file
        }
        throw;
    }
    return upload;
}

UploadInfo Uploads::info(const std::string& id, std::optional<std::int64_t> token) {
    auto index = store_.index();
    auto row = index->prepare(std::string(kUploadColumns) + "WHERE id = ?");
    if (!row.bind(id).step())
        no_such_upload(id);
    UploadInfo upload = read_row(row);
    if (token && *token != upload.token)
        no_such_upload(id);
    return upload;
}

std::vector<UploadInfo> Uploads::list() {
    auto index = store_.index();
    std::vector<UploadInfo> uploads;
    auto rows = index->prepare(std::string(kUploadColumns) + "ORDER BY created, id");
    while (rows.step())
        uploads.push_back(read_row(rows));
    return uploads;
}

LockedUpload::~LockedUpload() {
    if (file_)
        ::flock(file_.get(), LOCK_UN);
}

LockedUpload Uploads::open_locked(const std::string& id) {
    info(id); // throws NotFound unless we made this id; so it is not a path that the caller has chosen
    Folder& folder = store_.folder();
    UniqueFd file;
    try {
        file = folder.open_write(upload_path(id));
    } catch (const HostError& e) {
        if (e.code().value() == ENOENT)
            no_such_upload(id);
        throw;
    }
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0)
        throw Conflict(fmt::format("upload {}: another client is sending to it: wait until it has finished", id));
    return LockedUpload(std::move(file));
}

UploadWriter Uploads::append(const std::string& id, std::uint64_t offset) {
    LockedUpload file = open_locked(id);
    const UploadInfo upload = info(id); // read again, now that it is locked
    if (offset != upload.offset)
        throw WrongOffset(id, offset, upload.offset);
    return UploadWriter(store_, id, std::move(file), upload.offset, upload.size);
}

std::uint64_t Uploads::append(const std::string& id, std::uint64_t offset, std::span<const std::byte> bytes) {
    UploadWriter writer = append(id, offset);
    writer.write(bytes);
    writer.sync();
    return writer.offset();
}

LockedUpload Uploads::complete(const std::string& id) {
    LockedUpload file = open_locked(id);
    const UploadInfo upload = info(id);
    if (upload.offset != upload.size)
        throw WrongOffset(id, upload.size, upload.offset);
    Folder& folder = store_.folder();
    const Digest actual = sha256_of_file(file.get(), folder.full(upload_path(id)));
    if (actual != upload.digest) {
        delete_row(store_, id);
        folder.remove(upload_path(id));
        throw DigestMismatch("upload " + id, upload.digest, actual);
    }
    return file;
}

void Uploads::drop(const std::string& id) {
    const LockedUpload locked = open_locked(id);
    // The row first: a row without a file would be an error, but a file without a row is removed by gc.
    delete_row(store_, id);
    store_.folder().remove(upload_path(id));
}

void Uploads::drop_idle(std::chrono::seconds quiet) {
    for (const UploadInfo& upload : list()) {
        const UniqueFd file = store_.folder().open_read(upload_path(upload.id));
        struct stat status {};
        if (!file || ::fstat(file.get(), &status) != 0 || now_ms() / 1000 - status.st_mtime < quiet.count())
            continue;
        try {
            drop(upload.id);
        } catch (const NotFound&) { // dropped by another caller
        } catch (const Conflict&) { // somebody is sending after all
        }
    }
}

UploadWriter::UploadWriter(Store& store, std::string id, LockedUpload fd, std::uint64_t offset, std::uint64_t size)
    : store_(&store), id_(std::move(id)), path_(upload_path(id_)), fd_(std::move(fd)), offset_(offset), size_(size) {}

void UploadWriter::write(std::span<const std::byte> bytes) {
    if (bytes.size() > size_ - offset_)
        throw BadValue(fmt::format("upload {}: more bytes than the {} that were announced", id_, size_));
    store_->folder().write(fd_.get(), path_, bytes, offset_);
    offset_ += bytes.size();
}

void UploadWriter::sync() {
    store_->folder().sync(fd_.get(), path_);
    store_->index()->prepare("UPDATE upload SET durable = ? WHERE id = ?").bind(offset_).bind(id_).run();
}

} // namespace kvmserver::store
