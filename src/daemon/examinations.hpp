// What is known of snapshots, and how many are examined at once.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <semaphore>
#include <string>

#include "src/common/digest.hpp"
#include "src/daemon/examiner_process.hpp"
#include "src/store/snapshots/stored_snapshot.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::daemon {

// Too many snapshots are being examined, and wait for it.
class ExaminersBusy : public tinykvm::UserError {
public:
    ExaminersBusy(unsigned at_once, unsigned waiting);
};

struct ExaminationLimits {
    unsigned at_once = 2;  // files that somebody brought
    unsigned waiting = 16; // beside these
};

// For any number of threads. Facts are kept in memory, without their pieces.
class Examinations {
public:
    struct Ways {
        std::function<SnapshotFacts(int file, std::uint64_t bytes)> of_file;
        std::function<SnapshotFacts(const store::PieceFiles&, std::uint64_t bytes)> of_pieces;
        std::function<SnapshotFacts(const store::StoredSnapshot&)> of_stored;
    };
    // By processes.
    Examinations(Examiner examiner, ExaminationLimits limits);
    explicit Examinations(Ways ways, ExaminationLimits limits = {}); // for tests

    // Of a file that somebody brought, with its pieces; waits for its turn. Throws ExaminersBusy, UserError
    // (bad_snapshot), HostError.
    SnapshotFacts of_file(int file, std::uint64_t bytes);
    // The same of one whose pieces are files already.
    SnapshotFacts of_pieces(const store::PieceFiles& pieces, std::uint64_t bytes);
    // Of a snapshot of the store. A request waits for it, so it has no turn behind those that somebody brings; kStored
    // at once. Nothing: it cannot be examined; that is tried again a minute later.
    std::optional<SnapshotFacts> of_stored(const store::StoredSnapshot& snapshot);
    // Whether of_stored() examines nothing.
    bool knows(const Digest& digest);
    void learn(const Digest& digest, SnapshotFacts facts);
    std::uint64_t waiting(); // files

private:
    class Turn;
    struct Known {
        std::optional<SnapshotFacts> facts;            // nothing: it could not be examined
        std::size_t bytes = 0;                         // that they take, about
        std::chrono::steady_clock::time_point again{}; // then
    };
    const Known* find(const Digest& digest) const; // with the mutex held
    void keep(const Digest& digest, Known known);

    static constexpr std::ptrdiff_t kStored = 4;

    const Ways ways_;
    const ExaminationLimits limits_;
    std::counting_semaphore<> stored_{kStored};
    std::mutex mutex_; // guards the rest
    std::condition_variable turn_over_;
    unsigned examined_ = 0;
    std::uint64_t next_ticket_ = 0, served_ = 0; // in their order
    std::map<Digest, Known> known_;
    std::deque<Digest> order_; // of known_, the oldest first
    std::size_t known_bytes_ = 0;
};

} // namespace kvmserver::daemon
