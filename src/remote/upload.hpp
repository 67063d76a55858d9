// Uploads a snapshot: only the pieces that the server lacks, and resumed after every interruption.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "src/ops/delta.hpp"
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

// A snapshot as the bytes of its pieces, wherever they are.
struct Pieces {
    std::vector<ops::DeltaPiece> pieces; // all of them, in order; none is `sent` yet
    // Fills `into` with the snapshot's bytes from `offset` on.
    std::function<void(std::uint64_t offset, std::span<std::byte> into)> read;
    // Checks the content of one before it is sent; may be empty: the server checks it, too.
    std::function<void(std::size_t piece)> verify;
};

// Throws UserError (bad_snapshot) for a bad file, Problem, and Broken if the server stays unreachable.
Uploaded upload(Client& client, const ops::DigestedFile& file, const Progress& progress);
// `cut` is called if the server has not got the snapshot already.
Uploaded upload(Client& client, const Digest& snapshot, std::uint64_t bytes, const std::function<Pieces()>& cut,
                const Progress& progress);

} // namespace kvmserver::remote
