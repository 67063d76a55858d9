#include "src/daemon/examinations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace kvmserver::daemon {

using tinykvm::ExitCode;
using tinykvm::UserError;

namespace {

constexpr std::size_t kMaxKnownBytes = 16 << 20;
constexpr std::chrono::minutes kTriedAgain{1};

std::size_t bytes_of(const std::optional<SnapshotFacts>& facts) {
    return 256 + (facts ? 2 * to_text(*facts).size() : 0);
}

} // namespace

ExaminersBusy::ExaminersBusy(unsigned at_once, unsigned waiting)
    : UserError(ExitCode::unreachable,
                fmt::format("{} snapshots are being examined and {} wait for it: try again", at_once, waiting)) {}

// A slot for one of `at_once` examinations. Waiters get it in the order of arrival.
class Examinations::Turn {
public:
    explicit Turn(Examinations& all) : all_(all) {
        std::unique_lock lock(all_.mutex_);
        const std::uint64_t waiting = all_.next_ticket_ - all_.served_;
        if (waiting >= all_.limits_.waiting && all_.examined_ >= all_.limits_.at_once)
            throw ExaminersBusy(all_.examined_, static_cast<unsigned>(waiting));
        const std::uint64_t ticket = all_.next_ticket_++;
        all_.turn_over_.wait(lock, [&] { return ticket == all_.served_ && all_.examined_ < all_.limits_.at_once; });
        ++all_.served_;
        ++all_.examined_;
        all_.turn_over_.notify_all();
    }
    ~Turn() {
        const std::lock_guard lock(all_.mutex_);
        --all_.examined_;
        all_.turn_over_.notify_all();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

private:
    Examinations& all_;
};

Examinations::Examinations(const Examiner& examiner, ExaminationLimits limits)
    : Examinations(
          Operations{[examiner](int file, std::uint64_t bytes) { return examiner.of_file(file, bytes); },
                     [examiner](const store::PieceFiles& pieces, std::uint64_t bytes) {
                         return examiner.of_pieces(pieces, bytes);
                     },
                     [examiner](const store::StoredSnapshot& snapshot) { return examiner.of_stored(snapshot); }},
          limits) {}

Examinations::Examinations(Operations operations, ExaminationLimits limits)
    : operations_(std::move(operations)), limits_(limits) {}

SnapshotFacts Examinations::of_file(int file, std::uint64_t bytes) {
    const Turn turn(*this);
    return operations_.of_file(file, bytes);
}

SnapshotFacts Examinations::of_pieces(const store::PieceFiles& pieces, std::uint64_t bytes) {
    const Turn turn(*this);
    return operations_.of_pieces(pieces, bytes);
}

std::optional<SnapshotFacts> Examinations::of_stored(const store::StoredSnapshot& snapshot) {
    std::optional<SnapshotFacts> facts;
    const auto is_known = [&] {
        const std::lock_guard lock(mutex_);
        const Known* const known = find(snapshot.digest());
        if (known)
            facts = known->facts;
        return known != nullptr;
    };
    if (is_known())
        return facts;
    struct Slot {
        explicit Slot(std::counting_semaphore<>& all) : places(all) { places.acquire(); }
        ~Slot() { places.release(); }
        std::counting_semaphore<>& places;
    } const slot(stored_);
    if (is_known()) // examined meanwhile by another thread
        return facts;
    try {
        facts = operations_.of_stored(snapshot);
    } catch (const std::exception&) { // the function's own process will report the reason
    }
    const std::lock_guard lock(mutex_);
    keep(snapshot.digest(), {facts, bytes_of(facts), std::chrono::steady_clock::now() + kTriedAgain});
    return facts;
}

std::optional<SnapshotFacts> Examinations::known(const Digest& digest) {
    const std::lock_guard lock(mutex_);
    const Known* const found = find(digest);
    return found ? found->facts : std::nullopt;
}

bool Examinations::knows(const Digest& digest) {
    const std::lock_guard lock(mutex_);
    return find(digest) != nullptr;
}

void Examinations::learn(const Digest& digest, SnapshotFacts facts) {
    facts.pieces.clear();
    facts.pieces.shrink_to_fit();
    std::optional<SnapshotFacts> known(std::move(facts));
    const std::size_t bytes = bytes_of(known);
    const std::lock_guard lock(mutex_);
    keep(digest, {std::move(known), bytes, {}});
}

std::uint64_t Examinations::waiting() {
    const std::lock_guard lock(mutex_);
    return next_ticket_ - served_;
}

const Examinations::Known* Examinations::find(const Digest& digest) const {
    const auto at = known_.find(digest);
    const bool there = at != known_.end() && (at->second.facts || std::chrono::steady_clock::now() < at->second.again);
    return there ? &at->second : nullptr;
}

void Examinations::keep(const Digest& digest, Known known) {
    const auto forget = [this](const Digest& which) {
        if (const auto at = known_.find(which); at != known_.end()) {
            known_bytes_ -= at->second.bytes;
            known_.erase(at);
        }
    };
    forget(digest);
    std::erase(order_, digest);
    while (!order_.empty() && known_bytes_ + known.bytes > kMaxKnownBytes) {
        forget(order_.front());
        order_.pop_front();
    }
    known_bytes_ += known.bytes;
    known_.emplace(digest, std::move(known));
    order_.push_back(digest);
}

} // namespace kvmserver::daemon
