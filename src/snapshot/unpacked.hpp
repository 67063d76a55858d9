// Copies of the hot parts of snapshots, unpacked: read at a start in place of decompressing them, which is
// most of the work of a restore. They are kept as files, so that the page cache holds those in use.
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

#include "src/snapshot/format.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver {

class SnapshotReader;

// The unpacked copy of one snapshot's hot chunks. Any number of threads may use it.
class UnpackedCopy {
public:
    // The pages of hot chunk `number`, in a buffer of the calling thread that the next call overwrites. Empty
    // when the file does not hold them as they were written.
    std::span<const std::byte> chunk(std::size_t number) const;

private:
    friend class UnpackedCache;
    struct Entry {
        std::uint64_t offset = 0, bytes = 0;
        format::Checksum checksum;
    };
    tinykvm::UniqueFd fd_;
    std::vector<Entry> entries_;
};

class UnpackedCache {
public:
    // Below this a copy gains nothing worth its place.
    static constexpr std::uint64_t kWorthBytes = 2 << 20;
    static constexpr std::uint64_t kMostBytes = 1ull << 30; // of all copies; the longest unused go first

    // Keeps copies in `folder`, which is made when only it and its parent are missing; "" keeps none.
    explicit UnpackedCache(std::filesystem::path folder, std::uint64_t most_bytes = kMostBytes);

    // The copy made of this very file; nothing when there is none.
    std::optional<UnpackedCopy> find(const SnapshotReader& snapshot) const;
    // Makes a copy, if it is worth it. False when there is none afterwards; never throws for what is wrong
    // with the folder. Throws UserError (bad_snapshot) when the snapshot cannot be read.
    bool keep(const SnapshotReader& snapshot) const;

private:
    bool usable() const;
    bool make_folder() const;
    void make_room(std::uint64_t bytes) const;
    std::filesystem::path path_of(const SnapshotReader& snapshot) const;

    std::filesystem::path folder_;
    std::uint64_t most_bytes_;
};

// Where copies are kept when the user does not say: systemd's CACHE_DIRECTORY, else kvmserver/ in the user's
// cache folder (XDG Base Directory Specification); "" without either.
std::filesystem::path default_cache_folder();

} // namespace kvmserver
