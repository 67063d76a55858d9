// Uploads a snapshot: only the pieces that the server lacks, and resumed after every interruption.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "src/ops/import.hpp"
#include "src/remote/client.hpp"

namespace kvmserver::remote {

struct Uploaded {
    std::string snapshot;         // "sha256:..."
    std::uint64_t bytes = 0;      // of the snapshot
    std::uint64_t new_bytes = 0;  // bytes of pieces that the store did not have
    std::uint64_t sent_bytes = 0; // bytes sent, without headers
};

using Progress = std::function<void(std::uint64_t done, std::uint64_t all)>;

// Throws UserError (bad_snapshot) for a bad file, Problem, and Broken if the server stays unreachable.
Uploaded upload(Client& client, const ops::DigestedFile& file, const Progress& progress);

} // namespace kvmserver::remote
