// A cache of facts about snapshots, and a limit on how many are examined at once.
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

// Too many snapshots are being examined or wait for it.
class ExaminersBusy : public tinykvm::UserError {
public:
    ExaminersBusy(unsigned at_once, unsigned waiting);
};

struct ExaminationLimits {
    unsigned at_once = 2;  // uploaded files
    unsigned waiting = 16; // in addition to these
};

// Thread-safe. Keeps facts in memory, without their pieces.
class Examinations {
public:
    struct Operations {
        std::function<SnapshotFacts(int file, std::uint64_t bytes)> of_file;
        std::function<SnapshotFacts(const store::PieceFiles&, std::uint64_t bytes)> of_pieces;
        std::function<SnapshotFacts(const store::StoredSnapshot&)> of_stored;
    };
    // Examines in separate processes.
    Examinations(const Examiner& examiner, ExaminationLimits limits);
    explicit Examinations(Operations operations, ExaminationLimits limits = {}); // for tests

    // Examines an uploaded file, with its pieces. Waits for its turn. Throws ExaminersBusy, UserError (bad_snapshot),
    // HostError.
    SnapshotFacts of_file(int file, std::uint64_t bytes);
    // The same for a file that consists of pieces.
    SnapshotFacts of_pieces(const store::PieceFiles& pieces, std::uint64_t bytes);
    // Facts about a snapshot of the store. A request waits for the answer, so it does not queue behind uploads; at most
    // kStored run at once. Returns nothing if the snapshot cannot be examined; that is retried after a minute.
    std::optional<SnapshotFacts> of_stored(const store::StoredSnapshot& snapshot);
    // What of_stored() would return without an examination: nothing if it would need one, or fail.
    std::optional<SnapshotFacts> known(const Digest& digest);
    // Whether of_stored() would return without an examination.
    bool knows(const Digest& digest);
    // Adds facts that were found elsewhere.
    void learn(const Digest& digest, SnapshotFacts facts);
    std::uint64_t waiting(); // uploads that wait for their turn

private:
    class Turn;
    struct Known {
        std::optional<SnapshotFacts> facts;            // nothing: it could not be examined
        std::size_t bytes = 0;                         // their approximate size
        std::chrono::steady_clock::time_point again{}; // when to retry, if it could not be examined
    };
    const Known* find(const Digest& digest) const; // the mutex is held
    void keep(const Digest& digest, Known known);

    static constexpr std::ptrdiff_t kStored = 4;

    const Operations operations_;
    const ExaminationLimits limits_;
    std::counting_semaphore<> stored_{kStored};
    std::mutex mutex_; // guards the following
    std::condition_variable turn_over_;
    unsigned examined_ = 0;
    std::uint64_t next_ticket_ = 0, served_ = 0; // in order of arrival
    std::map<Digest, Known> known_;
    std::deque<Digest> order_; // of known_, oldest first
    std::size_t known_bytes_ = 0;
};

} // namespace kvmserver::daemon
