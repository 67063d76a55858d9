// The saved state of a machine that was suspended: what differs from the snapshot that it was restored from. Written
// and read by functions' processes; what one has written is as untrusted as a snapshot.
//
//   header     magic, sizes, the snapshot's SHA-256, checksums of what follows, and one of the header
//   metadata   a MachineState (metadata.hpp)
//   frames     the numbers of the frames that follow, ascending, 4 bytes each
//   pages      of these frames, as they are in memory: not compressed, since the time counts
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

// Fills an empty file, and returns once it is on the disk. `memory`: state.frames * 4096 bytes. `frames`: those that
// differ from the snapshot `base`, ascending. Returns the file's size. Throws HostError naming `what`, and FormatError
// for a state that could not be read again.
std::uint64_t write_state(int file, const Digest& base, const tinykvm::MachineState& state,
                          std::span<const std::byte> memory, std::span<const std::uint32_t> frames,
                          const std::string& what);

class StateFile {
public:
    // Checks all but the pages. `file` must stay open. Throws UserError (bad_snapshot) that begins with `what`, also
    // when it is of another snapshot than `base`, and HostError.
    StateFile(int file, const Digest& base, std::string what);
    const tinykvm::MachineState& machine() const { return machine_; }
    std::span<const std::uint32_t> frames() const { return frames_; } // ascending, below machine().frames
    // Calls fn for runs of pages, of frames from `first` on. If this throws, because the pages are damaged, what fn has
    // done is worth nothing.
    void read_pages(const std::function<void(std::uint32_t first, std::span<const std::byte> pages)>& fn) const;

private:
    [[noreturn]] void bad(const std::string& why) const;

    int file_;
    std::string what_;
    tinykvm::MachineState machine_;
    std::vector<std::uint32_t> frames_;
    std::uint64_t pages_at_ = 0;
    format::Checksum pages_sum_;
};

} // namespace kvmserver
