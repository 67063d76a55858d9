// How much room uploads may take: of one token, of all, and what stays free on the store's disk.
#pragma once
#include <cstdint>
#include <mutex>
#include <optional>

#include "src/admin/principal.hpp"
#include "src/store/snapshots/uploads.hpp"

namespace kvmserver::admin {

// Bytes of uploads that have begun, as announced; 0: no limit. The operator (by the socket) has no limit of a token.
struct UploadLimits {
    std::uint64_t of_token = std::uint64_t{8} << 30;
    std::uint64_t of_all = std::uint64_t{32} << 30;
    std::optional<std::uint64_t> keep_free = {}; // nothing: 1 GiB, a twentieth of the file system at most
};

// Thread-safe.
class UploadQuota {
public:
    explicit UploadQuota(UploadLimits limits) : limits_(limits) {}

    // Begins an upload, unless that would be too much: then throws Refused (413, 507). First drops uploads to which
    // nobody has sent anything for a day.
    store::UploadInfo create(store::Store& store, const Principal& who, std::uint64_t size, const Digest& digest);
    // Throws Refused unless a file of so many bytes may be made of one upload, and has room on the disk.
    void require_room(store::Store& store, const Principal& who, std::uint64_t bytes) const;

private:
    void require_free(store::Store& store, std::uint64_t bytes) const;
    void require_size(const Principal& who, std::uint64_t bytes) const;

    const UploadLimits limits_;
    std::mutex mutex_; // from looking at what there is to beginning one
};

} // namespace kvmserver::admin
