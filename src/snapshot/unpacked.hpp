// Chunks kept unpacked, and other pages (src/runner/large_pages.hpp), each in a file of its own: read at a start in place of decompressing them, and mapped
// by all processes whose snapshots hold the same chunk, which then have its pages in memory once.
//
// Only a help: whatever is wrong with a copy, the snapshot itself is read instead. Snapshots hold the secrets
// of processes, so the folder must be the user's own and closed to all others.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver {

// One unpacked chunk: its pages are the beginning of the file, which never changes.
struct UnpackedChunk {
    tinykvm::UniqueFd file;
    std::uint64_t bytes = 0; // of its pages
};

// Any number of threads and processes may use the same folder.
class UnpackedCache {
public:
    // Of a snapshot that is smaller than this, in memory, copies gain nothing worth their place.
    static constexpr std::uint64_t kWorthBytes = 4 << 20;
    // Copies take a tenth of the folder's file system, and at least this; the longest unused go first.
    static constexpr std::uint64_t kLeastRoom = 1ull << 30;

    // Keeps copies in `folder`, which is made when only it and its parent are missing; "" keeps none. `room`:
    // bytes of all copies; 0 for the default.
    explicit UnpackedCache(std::filesystem::path folder, std::uint64_t room = 0);

    // Whether copies can be had from or made in the folder.
    bool usable() const;
    // The copy of that name, of `bytes` bytes; nothing when there is none that is as it was written. `name`: fit for a file's, and another
    // one for other bytes (SnapshotReader::chunk_name()).
    std::optional<UnpackedChunk> find(const std::string& name, std::uint64_t bytes) const;
    // All bytes of a copy; nothing when there is none that is as it was written.
    std::optional<std::vector<std::byte>> read(const std::string& name) const;
    // Makes a copy, or takes the one that another process made meanwhile. Nothing when there is none
    // afterwards; never throws.
    std::optional<UnpackedChunk> keep(const std::string& name, std::span<const std::byte> pages) const;
    // Removes what is beyond the room. Never throws.
    void make_room() const;

private:
    void remove_old() const;
    bool make_folder() const;
    // `bytes`: how many there must be.
    std::optional<UnpackedChunk> open(const std::string& name, std::optional<std::uint64_t> bytes) const;

    std::filesystem::path folder_;
    std::uint64_t room_;
};

// Where copies are kept when the user does not say: systemd's CACHE_DIRECTORY, else kvmserver/ in the user's
// cache folder (XDG Base Directory Specification); "" without either.
std::filesystem::path default_cache_folder();

} // namespace kvmserver
