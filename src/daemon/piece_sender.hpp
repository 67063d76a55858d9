// A function begins to serve while chunks of its snapshot are still in the bucket.
//
// Its process gets what is on the disk at its start, the other pieces as they come (src/protocol/worker_messages.hpp).
// They come in the order of the snapshot's file, whose hot chunks are first; one that the process waits for goes before
// the others.
#pragma once
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "src/daemon/process_messages.hpp"
#include "src/store/snapshots/stored_snapshot.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::daemon {

// The pieces without which nothing can be told of a snapshot: header, metadata and index (src/snapshot/FORMAT.md).
std::vector<std::size_t> first_pieces(std::size_t count);

class PieceSender {
public:
    // Waits this long, and returns whether to go on.
    using GoOn = std::function<bool(std::chrono::milliseconds)>;

    // Brings the first pieces. Returns null if few are missing: then it brings all of them. Throws ChunksAway,
    // UserError (bad_snapshot: an object is altered or gone), HostError.
    static std::unique_ptr<PieceSender> begin(const store::StoredSnapshot& snapshot);

    // What its process is told. To be called once.
    ComingPieces take_later() { return std::move(later_); }

    // Brings and sends the pieces until all have been sent or the process has ended. `snapshot` is the one of begin(),
    // as another object. While the bucket is away it tries again, for half a minute. Throws as begin() does.
    void run(const store::StoredSnapshot& snapshot, const GoOn& go_on);

private:
    PieceSender(std::size_t count, const std::vector<std::size_t>& missing);
    std::optional<std::size_t> next();
    bool bring(const store::StoredSnapshot& snapshot, std::size_t piece, const GoOn& go_on);
    void send(const store::StoredSnapshot& snapshot);
    void send_rest(const store::StoredSnapshot& snapshot, const GoOn& go_on);

    ComingPieces later_;
    tinykvm::UniqueFd link_;
    std::mutex mutex_; // guards the following
    std::deque<std::size_t> to_bring_, to_send_;
    bool gone_ = false; // the process has ended
    std::chrono::steady_clock::time_point last_came_;
};

} // namespace kvmserver::daemon
