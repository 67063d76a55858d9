// The saved state of a machine that was suspended: what differs from the snapshot that it was restored from. Written
// and read by functions' processes; what one has written is as untrusted as a snapshot.
//
// One part or several. A later part has what has changed since the one before it, and only the last one's metadata
// count. Each begins at a multiple of 4096 bytes:
//
//   header     magic, sizes, the snapshot's SHA-256, checksums of the header before, of what follows, and of this
//   header metadata   a MachineState (metadata.hpp) frames     the numbers of the frames that follow, ascending, 4
//   bytes each; zeros up to a multiple of 4096 pages      of these frames, as they are in memory: not compressed, since
//   the time counts
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "src/common/digest.hpp"
#include "src/snapshot/format.hpp"
#include "tinykvm/machine/state.hpp"

namespace kvmserver {

inline constexpr std::size_t kMostStateParts = 16; // of a file

// What a file holds.
struct WrittenState {
    std::uint64_t bytes = 0; // 0: nothing
    std::size_t parts = 0;
    format::Checksum header; // of the last part
};

// Adds a part behind `before`, and returns once the file is on the disk. `memory`: state.frames * 4096 bytes. `frames`:
// those that differ from the snapshot `base` or, in a later part, may differ from the part before; ascending. Throws
// HostError naming `what`, and FormatError for a state that could not be read again. The parts before are intact then.
WrittenState write_state(int file, const WrittenState& before, const Digest& base, const tinykvm::MachineState& state,
                         std::span<const std::byte> memory, std::span<const std::uint32_t> frames,
                         const std::string& what);

class StateFile {
public:
    // Checks all but the pages. `file` must stay open. The state is its first `size` bytes, or all of it if it has
    // fewer. Throws UserError (bad_snapshot) that begins with `what`, also when it is of another snapshot than `base`,
    // and HostError.
    StateFile(int file, std::uint64_t size, const Digest& base, std::string what);
    const tinykvm::MachineState& machine() const { return machine_; }
    std::span<const std::uint32_t> frames() const { return frames_; } // ascending, below machine().frames
    std::size_t parts() const { return parts_.size(); }
    // Calls fn for runs of pages, of the parts from `part` on. If this throws, because the pages are damaged, what fn
    // has done is worth nothing.
    void read_pages(const std::function<void(std::uint32_t first, std::span<const std::byte> pages)>& fn,
                    std::size_t part = 0) const;

private:
    struct Part {
        std::vector<std::uint32_t> frames;
        std::uint64_t pages_at = 0, end = 0; // in the file
        format::Checksum pages, header;
    };
    [[noreturn]] void bad(const std::string& why) const;
    // The part that begins at `at`, behind `before`.
    Part read_part(std::uint64_t at, const Digest& base, const Part* before);
    void read_part_pages(std::size_t part,
                         const std::function<void(std::uint32_t first, std::span<const std::byte> pages)>& fn) const;

    int file_;
    std::string what_;
    tinykvm::MachineState machine_;
    std::vector<Part> parts_;
    std::vector<std::uint32_t> frames_;
    std::vector<std::uint8_t> last_; // by frame: 1 + the number of the last part that has it, or 0
};

} // namespace kvmserver
