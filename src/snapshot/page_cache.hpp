// Cache of unpacked pages, named by their SHA-256: chunks of snapshots, and large pages (src/capture/large_pages.hpp).
// A start reads copies instead of decompressing. All processes whose snapshots hold the same pages map the same file,
// so that the pages are in memory once.
//
// The cache is optional: if a copy is missing or bad, the snapshot itself is read.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/common/digest.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver {

struct CopyName {
    Digest sha256{};         // of all bytes of the copy
    std::uint64_t bytes = 0; // a multiple of the page size
};

// Where copies are kept: in a folder of the user (folder_cache.hpp), or with the daemon (src/runner/cache_client.hpp).
// Any number of threads may use one. A copy is the beginning of a file that never changes; descriptors are read-only,
// and empty when there is no copy.
class PageCache {
public:
    // Copies are not worth their space for snapshots with less memory than this.
    static constexpr std::uint64_t kWorthBytes = 4 << 20;
    static constexpr std::uint64_t kMaxCopyBytes = 4 << 20; // of one copy
    static bool is_size(std::uint64_t bytes) { return bytes != 0 && bytes <= kMaxCopyBytes && bytes % 4096 == 0; }

    virtual ~PageCache() = default;
    // Whether copies can be read or made at all.
    virtual bool usable() const = 0;
    // One descriptor for each name.
    virtual std::vector<tinykvm::UniqueFd> find_all(std::span<const CopyName> names) const = 0;
    tinykvm::UniqueFd find(const CopyName& name) const { return std::move(find_all(std::span(&name, 1)).front()); }
    // Makes a copy, or returns the one that another process has made meanwhile.
    virtual tinykvm::UniqueFd keep(const CopyName& name, std::span<const std::byte> pages) const = 0;
    // The same for callers that do not need the copy now; may return before it is made.
    virtual void offer(const CopyName& name, std::span<const std::byte> pages) const = 0;
    // Evicts copies beyond the size limit, if this object manages it.
    virtual void make_room() const = 0;
    virtual std::string where() const = 0; // for messages

protected:
    PageCache() = default;
    PageCache(const PageCache&) = default;
    PageCache& operator=(const PageCache&) = default;
};

} // namespace kvmserver
