// The files whose concatenation is a snapshot's file.
#pragma once
#include <cstddef>

#include "src/store/snapshots/snapshot_record.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::store {

class PieceFiles {
public:
    virtual ~PieceFiles() = default;
    virtual std::size_t piece_count() const = 0;
    virtual ChunkRef piece(std::size_t number) const = 0;
    // A readable file that holds exactly this piece. Its length has been checked, its bytes not (a snapshot has its own
    // checksums). The caller owns the descriptor. Throws UserError (bad_snapshot), HostError.
    virtual tinykvm::UniqueFd open_piece(std::size_t number) const = 0;
};

} // namespace kvmserver::store
