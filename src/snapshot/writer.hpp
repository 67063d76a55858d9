// Writes snapshot files.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "src/snapshot/folder_cache.hpp"
#include "tinykvm/machine/state.hpp"

namespace kvmserver {

struct SnapshotSummary {
    std::uint64_t file_bytes = 0;
    std::string sha256; // of the whole file, 64 hexadecimal digits
    std::uint32_t stored_pages = 0;
    std::uint32_t zero_pages = 0;   // not stored
    std::uint32_t copied_pages = 0; // not stored: same content as another
    std::uint32_t chunks = 0, hot_chunks = 0;
};

// Writes `state` and `memory` (state.frames * 4096 bytes, which nobody may change meanwhile) to `path`,
// replacing a regular file of that name only when all is written and flushed; on any failure nothing is left
// behind. The same input gives the same bytes. `hot_frames`: in order of first use. `level`: a zstd
// level 1..22, or 0 for the default. `memory_fd`: the memfd whose shared mapping `memory` is, to skip its
// holes, or -1. `cache`: where chunks are kept as they were compressed, for the next snapshot. Throws
// UserError (the path; a state that the format cannot hold) and HostError.
SnapshotSummary write_snapshot(const std::filesystem::path& path, const tinykvm::MachineState& state,
                               std::span<const std::byte> memory, std::span<const std::uint32_t> hot_frames,
                               int level = 0, int memory_fd = -1, const FolderCache& cache = FolderCache(""));

} // namespace kvmserver
