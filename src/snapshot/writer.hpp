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
    std::string sha256; // of the whole file, 64 hexadecimal digits; "" if it is handed on
    std::uint32_t stored_pages = 0;
    std::uint32_t zero_pages = 0;   // not stored
    std::uint32_t copied_pages = 0; // not stored: same content as another page
    std::uint32_t chunks = 0, hot_chunks = 0;
};

enum class Purpose {
    keep,    // the file must survive a crash of the host once this returns
    hand_on, // whoever reads it next keeps it
};

// Writes `state` and `memory` (state.frames * 4096 bytes, which must not change meanwhile) to `path`. A regular file of
// that name is replaced only when everything is written; on failure nothing is left behind. Output is
// deterministic. `hot_frames` are in order of first use. `level` is a zstd level 1..22, 0 for the default, or
// kQuickLevel (codec.hpp) for chunks that `cache` does not have compressed at the default level.
// `memory_fd` is the memfd of which `memory` is a shared mapping, to skip its holes, or -1. `cache` keeps compressed
// chunks for the next snapshot. Throws UserError (bad path, or a state that the format cannot hold) and HostError.
SnapshotSummary write_snapshot(const std::filesystem::path& path, const tinykvm::MachineState& state,
                               std::span<const std::byte> memory, std::span<const std::uint32_t> hot_frames,
                               int level = 0, int memory_fd = -1, const FolderCache& cache = FolderCache(""),
                               Purpose purpose = Purpose::keep);

} // namespace kvmserver
