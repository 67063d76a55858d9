// The files that, one after the other, are a snapshot's file.
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
    // For openat and pread: it holds that piece and nothing else. Its length is checked, its bytes are not (a snapshot
    // has checksums of its own). The descriptor may be kept. Throws UserError (bad_snapshot), HostError.
    virtual tinykvm::UniqueFd open_piece(std::size_t number) const = 0;
};

} // namespace kvmserver::store
