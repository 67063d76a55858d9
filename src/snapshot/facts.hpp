// What a daemon needs to know of a snapshot's file that strangers made.
//
// Examining is a function from a file to plain values. It runs in a process that can do nothing else, which sends its
// answer as text.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/snapshot/byte_source.hpp"
#include "src/snapshot/format.hpp"
#include "tinykvm/machine/state.hpp"

namespace kvmserver {

struct SnapshotFacts {
    std::uint32_t guest_abi = 0, frames = 0, threads = 0; // of MachineState
    // What the file is cut into: header, each chunk, metadata, index. They make up the file.
    std::vector<std::uint64_t> pieces; // bytes; empty with Depth::metadata
    tinykvm::Permissions permissions;  // what it asks for
    tinykvm::Limits limits;
    std::string cwd; // the folder that its program works in
    bool operator==(const SnapshotFacts&) const = default;
};

enum class Depth {
    whole,    // all that can be checked without decompressing chunks or the contents of handles
    metadata, // header and metadata, of a file that was examined as a whole before
};

// Checks header, checksums, the index entry by entry and the metadata value by value. Needs less than 32 MiB of memory
// whatever the file says, and time in proportion to the file, its JSON (16 MiB) and its index (256 MiB).
// Throws FormatError, HostError.
SnapshotFacts examine_snapshot(const ByteSource& source, Depth depth = Depth::whole);
SnapshotFacts examine_snapshot(int fd); // at any offset; a regular file

// Each piece is a file in the store, and a descriptor where the snapshot is restored.
inline constexpr std::size_t kMaxPieces = 64 << 10;
// Of what a snapshot asks for: the daemon keeps it.
inline constexpr std::size_t kMaxPermissionsText = 256 << 10;
inline constexpr std::size_t kMaxFactsText = 2 << 20;

std::string to_text(const SnapshotFacts& facts); // JSON
// Strict, and in bounded memory: the text may come from a process that a hostile snapshot has taken over. With
// Depth::whole the pieces must make up a file of that length. Throws FormatError.
SnapshotFacts facts_from_text(std::string_view text, Depth depth, std::uint64_t file_bytes);

} // namespace kvmserver
