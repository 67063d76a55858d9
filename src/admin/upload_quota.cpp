#include "src/admin/upload_quota.hpp"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <chrono>

#include "src/admin/problem.hpp"
#include "src/store/errors.hpp"

namespace kvmserver::admin {
namespace {

constexpr std::chrono::hours kAbandoned{24};
constexpr std::uint64_t kMiB = 1 << 20;

std::string size_text(std::uint64_t bytes) {
    return bytes < kMiB ? fmt::format("{} bytes", bytes) : fmt::format("{} MiB", (bytes + kMiB - 1) / kMiB);
}

// Whether `now` plus `more` exceeds `most`; 0 is no limit.
bool exceeds(std::uint64_t now, std::uint64_t more, std::uint64_t most) {
    return most != 0 && (now > most || more > most - now);
}

} // namespace

void UploadQuota::require_size(const Principal& who, std::uint64_t bytes) const {
    if (who.id() != 0 && exceeds(0, bytes, limits_.of_token))
        throw Refused(413, "too-large",
                      fmt::format("an upload of {}: a token may have {} under way", size_text(bytes),
                                  size_text(limits_.of_token)),
                      "the server's operator can raise that: serve --token-uploads");
}

std::uint64_t UploadQuota::kept_free(std::uint64_t total_bytes) const {
    return limits_.keep_free.value_or(std::min<std::uint64_t>(std::uint64_t{1} << 30, total_bytes / 20));
}

void UploadQuota::require_free(store::Store& store, std::uint64_t bytes) const {
    struct statvfs disk {};
    if (::fstatvfs(store.folder().fd(), &disk) != 0)
        tinykvm::throw_errno("statvfs " + store.folder().full(""));
    const std::uint64_t free = std::uint64_t{disk.f_bavail} * disk.f_frsize;
    const std::uint64_t total = std::uint64_t{disk.f_blocks} * disk.f_frsize;
    const std::uint64_t kept = kept_free(total);
    if (free < kept || free - kept < bytes)
        throw Refused(507, "disk-full",
                      fmt::format("{} more need to be stored, {} are free and {} stay free", size_text(bytes),
                                  size_text(free), size_text(kept)),
                      "make room on the server (kvmserver gc, POST /v1/gc), or serve with a smaller --keep-free");
}

store::UploadInfo UploadQuota::create(store::Store& store, const Principal& who, std::uint64_t size,
                                      const Digest& digest) {
    require_size(who, size);
    const std::lock_guard lock(mutex_);
    store::Uploads uploads(store);
    uploads.drop_idle(kAbandoned);
    std::uint64_t of_token = 0, of_all = 0, to_come = 0;
    for (const store::UploadInfo& each : uploads.list()) {
        of_all += each.size;
        to_come += each.size - each.offset;
        if (each.token == who.id())
            of_token += each.size;
    }
    if (who.id() != 0 && exceeds(of_token, size, limits_.of_token))
        throw Refused(413, "upload-quota",
                      fmt::format("uploads of this token would be {}, and may be {}: end others first, or DELETE them",
                                  size_text(of_token + size), size_text(limits_.of_token)));
    if (exceeds(of_all, size, limits_.of_all))
        throw Refused(507, "uploads-full",
                      fmt::format("uploads under way would be {}, and may be {}: try again when others have ended",
                                  size_text(of_all + size), size_text(limits_.of_all)),
                      "the server's operator can raise that: serve --uploads", {{"Retry-After", "60"}});
    require_free(store, to_come + size);
    return uploads.create(size, digest, who.id());
}

void UploadQuota::require_room(store::Store& store, const Principal& who, std::uint64_t bytes) const {
    require_size(who, bytes);
    require_free(store, bytes);
}

} // namespace kvmserver::admin
