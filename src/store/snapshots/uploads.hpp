// Resumable uploads: bytes that arrive in parts, over connections that break. The caller decides what they are: a
// snapshot's file, or the concatenated pieces that the store lacked.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/common/digest.hpp"
#include "src/store/files/lock.hpp"
#include "src/store/store.hpp"

namespace kvmserver::store {

struct UploadInfo {
    std::string id;
    std::uint64_t size = 0, offset = 0; // offset: number of durable bytes, where the sender resumes
    Digest digest;
    std::int64_t created = 0;
    std::int64_t token = 0; // token that began it; 0: the operator, by the socket
};

// The locked file of an upload: nobody else can append to it or drop it. The destructor unlocks it explicitly, because
// closing alone would not: a process that is being started briefly has copies of all descriptors.
class LockedUpload {
public:
    explicit LockedUpload(tinykvm::UniqueFd file) : file_(std::move(file)) {} // must be locked by flock
    LockedUpload(LockedUpload&&) = default;
    LockedUpload& operator=(LockedUpload&&) = delete;
    ~LockedUpload();
    int get() const { return file_.get(); }

private:
    tinykvm::UniqueFd file_;
};

// Writes one part of an upload, which stays locked meanwhile.
class UploadWriter {
public:
    void write(std::span<const std::byte> bytes); // throws BadValue past the announced size
    // Makes the written bytes durable and advances the upload's offset. Bytes that are not synced do not count.
    void sync();
    std::uint64_t offset() const { return offset_; } // includes bytes that are not durable yet

private:
    friend class Uploads;
    UploadWriter(Store& store, std::string id, LockedUpload fd, std::uint64_t offset, std::uint64_t size);
    Store* store_;
    std::string id_, path_;
    LockedUpload fd_;
    std::uint64_t offset_, size_;
};

// Errors: NotFound, BadValue, Conflict ("somebody else is appending"), WrongOffset, DigestMismatch, HostError.
class Uploads {
public:
    explicit Uploads(Store& store) : store_(store) {}
    // Begins an upload of `size` bytes (1 byte to 1 TiB) with this SHA-256.
    UploadInfo create(std::uint64_t size, const Digest& digest, std::int64_t token = 0);
    // With `token`, an upload of another token is NotFound.
    UploadInfo info(const std::string& id, std::optional<std::int64_t> token = {});
    std::vector<UploadInfo> list();

    // Locks the upload for appending. `offset` must be the upload's.
    UploadWriter append(const std::string& id, std::uint64_t offset);
    // write() and sync() in one call; returns the new offset.
    std::uint64_t append(const std::string& id, std::uint64_t offset, std::span<const std::byte> bytes);

    // Checks the complete upload and returns its file at offset 0. Throws WrongOffset when it is not complete. If the
    // digest does not match, drops the upload and throws DigestMismatch. A good upload stays until drop(), so that a
    // crash costs no transfer.
    LockedUpload complete(const std::string& id);
    void drop(const std::string& id);
    // Drops uploads that have been idle for `quiet` and to which nobody is sending.
    void drop_idle(std::chrono::seconds quiet);

private:
    LockedUpload open_locked(const std::string& id);
    Store& store_;
};

std::string upload_path(const std::string& id);

} // namespace kvmserver::store
