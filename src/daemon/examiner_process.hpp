// A process that examines one snapshot (src/runner/examiner.hpp), seen from the daemon: what strangers made is never
// parsed by the daemon itself.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

#include "src/jail/walls.hpp"
#include "src/snapshot/facts.hpp"
#include "src/store/snapshots/stored_snapshot.hpp"

namespace kvmserver::daemon {

struct Examiner {
    std::string executable = "/proc/self/exe"; // a kvmserver
    jail::Mode mode = jail::Mode::automatic;
    std::chrono::seconds least{10}; // that one may take; a large file may take longer

    // All throw UserError (bad_snapshot, and without the snapshot's name, when it is not sound, or not examined within
    // its time and memory), HostError. For any number of threads; the process ends with the thread.
    SnapshotFacts of_file(int file, std::uint64_t bytes) const;                          // Depth::whole
    SnapshotFacts of_pieces(const store::PieceFiles& pieces, std::uint64_t bytes) const; // the same
    SnapshotFacts of_stored(const store::StoredSnapshot& snapshot) const;                // Depth::metadata
};

} // namespace kvmserver::daemon
