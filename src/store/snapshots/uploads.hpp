// Bytes that arrive in parts, over connections that break. What they are is the caller's matter: a snapshot's
// file, or its pieces that the store lacked, one after the other.
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
    std::uint64_t size = 0, offset = 0; // offset: what is durable, and where to go on
    Digest digest;
    std::int64_t created = 0;
    std::int64_t token = 0; // of who began it; 0: the operator, by the socket
};

// The file of an upload that nobody else appends to or drops meanwhile. Closing it alone would not end that: a process
// that is just being started has copies of all descriptors for a moment.
class LockedUpload {
public:
    explicit LockedUpload(tinykvm::UniqueFd file) : file_(std::move(file)) {} // locked by flock
    LockedUpload(LockedUpload&&) = default;
    LockedUpload& operator=(LockedUpload&&) = delete;
    ~LockedUpload();
    int get() const { return file_.get(); }

private:
    tinykvm::UniqueFd file_;
};

// One part of one upload, which nobody else appends to meanwhile.
class UploadWriter {
public:
    void write(std::span<const std::byte> bytes); // throws BadValue beyond the announced size
    // What was written is durable and counts. Not called: it does not count.
    void sync();
    std::uint64_t offset() const { return offset_; } // with what is not durable yet

private:
    friend class Uploads;
    UploadWriter(Store& store, std::string id, LockedUpload fd, std::uint64_t offset, std::uint64_t size);
    Store* store_;
    std::string id_, path_;
    LockedUpload fd_;
    std::uint64_t offset_, size_;
};

// Errors: NotFound, BadValue, Conflict ("somebody else is appending"), WrongOffset, DigestMismatch,
// HostError.
class Uploads {
public:
    explicit Uploads(Store& store) : store_(store) {}
    UploadInfo create(std::uint64_t size, const Digest& digest, std::int64_t token = 0);
    // Of any token's, or only of that one's: another's is as if there were none.
    UploadInfo info(const std::string& id, std::optional<std::int64_t> token = {});
    std::vector<UploadInfo> list();

    UploadWriter append(const std::string& id, std::uint64_t offset);
    // write() and sync() in one; returns the new offset.
    std::uint64_t append(const std::string& id, std::uint64_t offset, std::span<const std::byte> bytes);

    // The complete bytes, checked, from offset 0. An upload that is not complete is WrongOffset; one of other
    // bytes than announced is dropped (DigestMismatch). A good one stays until drop(), so that a crash costs
    // no transfer.
    LockedUpload complete(const std::string& id);
    void drop(const std::string& id);
    // Those to which nothing was written for so long, and to which nobody is sending.
    void drop_idle(std::chrono::seconds quiet);

private:
    LockedUpload open_locked(const std::string& id);
    Store& store_;
};

std::string upload_path(const std::string& id);

} // namespace kvmserver::store
