// Copies of unpacked pages, each called by the SHA-256 of what is in it: chunks of snapshots, and large pages
// (src/capture/large_pages.hpp). Read at a start in place of decompressing them, and mapped by all processes
// whose snapshots hold the same pages, which then have them in memory once.
//
// Only a help: whatever is wrong with a copy, the snapshot itself is read instead.
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
    Digest sha256{};         // of all its bytes
    std::uint64_t bytes = 0; // whole pages
};

// Where copies are: a folder of the user's (folder_cache.hpp), or with the daemon
// (src/runner/cache_client.hpp). Any number of threads may use the same. A copy is the beginning of its file,
// which never changes; it is open for reading only. No descriptor: there is none.
class PageCache {
public:
    // Of a snapshot that is smaller than this, in memory, copies gain nothing worth their place.
    static constexpr std::uint64_t kWorthBytes = 4 << 20;
    static constexpr std::uint64_t kMaxCopyBytes = 4 << 20; // of one
    static bool is_size(std::uint64_t bytes) { return bytes != 0 && bytes <= kMaxCopyBytes && bytes % 4096 == 0; }

    virtual ~PageCache() = default;
    // Whether copies can be had or made at all.
    virtual bool usable() const = 0;
    // One answer for each name.
    virtual std::vector<tinykvm::UniqueFd> find_all(std::span<const CopyName> names) const = 0;
    tinykvm::UniqueFd find(const CopyName& name) const { return std::move(find_all(std::span(&name, 1)).front()); }
    // Makes a copy, or takes the one that another process made meanwhile.
    virtual tinykvm::UniqueFd keep(const CopyName& name, std::span<const std::byte> pages) const = 0;
    // The same for whoever has no use for the copy now; does not wait until it is made.
    virtual void offer(const CopyName& name, std::span<const std::byte> pages) const = 0;
    // Removes what is beyond the room, if that is ours to do.
    virtual void make_room() const = 0;
    virtual std::string where() const = 0; // for people

protected:
    PageCache() = default;
    PageCache(const PageCache&) = default;
    PageCache& operator=(const PageCache&) = default;
};

} // namespace kvmserver
