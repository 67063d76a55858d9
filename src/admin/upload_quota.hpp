// Limits the space that uploads take: per token, in total, and what stays free on the store's disk.
#pragma once
#include <cstdint>
#include <mutex>
#include <optional>

#include "src/admin/principal.hpp"
#include "src/store/snapshots/uploads.hpp"

namespace kvmserver::admin {

// Limits on the announced bytes of unfinished uploads; 0: no limit. `of_token` does not apply to the operator (Unix
// socket).
struct UploadLimits {
    std::uint64_t of_token = std::uint64_t{8} << 30;
    std::uint64_t of_all = std::uint64_t{32} << 30;
    std::optional<std::uint64_t> keep_free = {}; // nothing: 1 GiB, but at most 1/20 of the file system
};

// Thread-safe.
class UploadQuota {
public:
    explicit UploadQuota(UploadLimits limits) : limits_(limits) {}

    // Begins an upload; throws Refused (413, 507) if it exceeds a limit. Drops uploads first that have received nothing
    // for a day.
    store::UploadInfo create(store::Store& store, const Principal& who, std::uint64_t size, const Digest& digest);
    // Throws Refused unless an upload may expand to a file of that size, with room on the disk.
    void require_room(store::Store& store, const Principal& who, std::uint64_t bytes) const;
    // What uploads leave free on a file system of this size.
    std::uint64_t kept_free(std::uint64_t total_bytes) const;

private:
    void require_free(store::Store& store, std::uint64_t bytes) const;
    void require_size(const Principal& who, std::uint64_t bytes) const;

    const UploadLimits limits_;
    std::mutex mutex_; // held from counting the uploads until the new one has begun
};

} // namespace kvmserver::admin
