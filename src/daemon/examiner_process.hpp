// The daemon's side of an examiner process (src/runner/examiner.hpp). The daemon itself never parses untrusted
// snapshots.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "src/jail/walls.hpp"
#include "src/snapshot/facts.hpp"
#include "src/snapshot/pressed.hpp"
#include "src/store/snapshots/stored_snapshot.hpp"

namespace kvmserver::daemon {

struct Examiner {
    std::string executable = "/proc/self/exe"; // a kvmserver binary
    jail::Mode mode = jail::Mode::automatic;
    std::chrono::seconds least{10}; // time limit; large files get more

    // All throw HostError, and UserError (bad_snapshot) if the snapshot is invalid or not examined within its time and
    // memory; the text does not name the snapshot. Thread-safe. The process is killed when the calling thread ends.
    SnapshotFacts of_file(int file, std::uint64_t bytes) const;                          // Depth::whole
    SnapshotFacts of_pieces(const store::PieceFiles& pieces, std::uint64_t bytes) const; // Depth::whole
    SnapshotFacts of_stored(const store::StoredSnapshot& snapshot) const;                // Depth::metadata
    // Has the snapshot compressed anew to `out`, an empty file, when nothing else wants the processor: however long
    // that takes, until `stop`. Returns nothing if there was nothing to do or `stop` was true. What is in `out` is as
    // untrusted as the snapshot.
    std::optional<Pressed> compress(const store::StoredSnapshot& snapshot, int out,
                                    const std::function<bool()>& stop) const;
};

} // namespace kvmserver::daemon
