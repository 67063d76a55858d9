// What a daemon needs to know about an untrusted snapshot file.
//
// Examination is a function from a file to plain values. It runs in a sandboxed process, which sends its result as
// text.
#pragma once
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/snapshot/byte_source.hpp"
#include "src/snapshot/format.hpp"
#include "tinykvm/machine/state.hpp"

namespace kvmserver {

struct SnapshotFacts {
    std::uint32_t guest_abi = 0, frames = 0, threads = 0; // of MachineState
    // Lengths of the parts that make up the file: header, each chunk, metadata, index.
    std::vector<std::uint64_t> pieces; // in bytes; empty with Depth::metadata
    tinykvm::Permissions permissions;  // what the snapshot asks for
    tinykvm::Limits limits;
    std::string cwd;                               // the program's working directory
    std::vector<tinykvm::ListenerState> listeners; // up to 64 of them
    std::vector<tinykvm::LateVariable> late_env;   // up to 64 KiB of them; without their addresses
    bool operator==(const SnapshotFacts&) const = default;
};

enum class Depth {
    whole,    // everything that can be checked without decompressing chunks or contents of handles
    metadata, // header and metadata only, for a file that was examined as a whole before
};

// Checks header, checksums, the index entry by entry and the metadata value by value. Needs less than 32 MiB of memory
// whatever the file contains, and time in proportion to the file, its JSON (at most 16 MiB) and its index (at most 256
// MiB). Throws FormatError, HostError.
SnapshotFacts examine_snapshot(const ByteSource& source, Depth depth = Depth::whole);
SnapshotFacts examine_snapshot(int fd); // a regular file; its offset does not matter

// Its listener that a stream connection to this address reaches (tinykvm::listens_at).
std::optional<std::uint32_t> listener_at(const SnapshotFacts& facts, const sockaddr* to, socklen_t bytes);

// Bounds the pieces: each is a file in the store, and a descriptor where the snapshot is restored.
inline constexpr std::size_t kMaxPieces = 64 << 10;
// Bounds the permissions that a snapshot asks for, which the daemon keeps.
inline constexpr std::size_t kMaxPermissionsText = 256 << 10;
inline constexpr std::size_t kMaxFactsText = 2 << 20;

std::string to_text(const SnapshotFacts& facts); // JSON
// Strict, and in bounded memory: the text may come from a process that a hostile snapshot has taken over. With
// Depth::whole the pieces must add up to `file_bytes`. Throws FormatError.
SnapshotFacts facts_from_text(std::string_view text, Depth depth, std::uint64_t file_bytes);

} // namespace kvmserver
