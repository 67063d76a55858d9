#include "src/daemon/piece_sender.hpp"

#include <algorithm>
#include <cerrno>

#include "src/common/background_work.hpp"
#include "src/protocol/worker_messages.hpp"
#include "src/store/errors.hpp"

namespace kvmserver::daemon {

using std::chrono::steady_clock;

namespace {

constexpr std::size_t kFew = 16; // pieces that are brought at once: a process that waits for them begins as early
constexpr unsigned kPiecesAtOnce = 8;
constexpr int kAskedAtOnce = 64; // messages of a process, which may be hostile
constexpr std::chrono::seconds kBucketAway{30}, kProcessBusy{60};
constexpr std::chrono::milliseconds kAskAgain{1000}, kSendAgain{50}, kNoTime{0};

} // namespace

std::vector<std::size_t> first_pieces(std::size_t count) {
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < count; ++i)
        if (i == 0 || i + 2 >= count)
            out.push_back(i);
    return out;
}

PieceSender::PieceSender(std::size_t count, const std::vector<std::size_t>& missing)
    : later_{ComesLater(count), {}}, last_came_(steady_clock::now()) {
    const auto first = first_pieces(count);
    for (const std::size_t piece : missing)
        if (std::ranges::find(first, piece) == first.end()) {
            later_.pieces[piece] = true;
            to_bring_.push_back(piece);
        }
    auto [ours, theirs] = protocol::make_pair();
    link_ = std::move(ours);
    later_.link = std::move(theirs);
}

std::unique_ptr<PieceSender> PieceSender::begin(const store::StoredSnapshot& snapshot) {
    const auto missing = snapshot.missing();
    if (missing.size() <= kFew) {
        snapshot.make_local();
        return nullptr;
    }
    snapshot.bring(first_pieces(snapshot.piece_count()));
    return std::unique_ptr<PieceSender>(new PieceSender(snapshot.piece_count(), missing));
}

// The piece to bring next; nothing: there is none, or nobody wants it.
std::optional<std::size_t> PieceSender::next() {
    const std::lock_guard lock(mutex_);
    bool none_yet = false;
    for (int i = 0; i < kAskedAtOnce && !none_yet && !gone_; ++i) {
        const auto asked = protocol::receive(link_.get(), protocol::Wait::no, &none_yet);
        gone_ = !asked && !none_yet;
        if (!asked)
            continue;
        const auto found = std::ranges::find(to_bring_, std::size_t{asked->message.left});
        if (found != to_bring_.end()) {
            to_bring_.erase(found);
            to_bring_.push_front(asked->message.left);
        }
    }
    if (gone_ || to_bring_.empty())
        return std::nullopt;
    const std::size_t piece = to_bring_.front();
    to_bring_.pop_front();
    return piece;
}

// False if it is to end.
bool PieceSender::bring(const store::StoredSnapshot& snapshot, std::size_t piece, const GoOn& go_on) {
    for (;;) {
        try {
            snapshot.bring({&piece, 1});
            const std::lock_guard lock(mutex_);
            last_came_ = steady_clock::now();
            to_send_.push_back(piece);
            return true;
        } catch (const store::ChunksAway&) {
            const std::lock_guard lock(mutex_);
            if (steady_clock::now() - last_came_ > kBucketAway)
                throw;
        }
        if (!go_on(kAskAgain))
            return false;
    }
}

// As many as the socket takes.
void PieceSender::send(const store::StoredSnapshot& snapshot) {
    const std::lock_guard lock(mutex_);
    while (!to_send_.empty() && !gone_) {
        protocol::Message message;
        message.kind = protocol::Kind::later;
        message.left = static_cast<std::uint32_t>(to_send_.front());
        const tinykvm::UniqueFd file = snapshot.open_piece(to_send_.front());
        if (protocol::send(link_.get(), message, file.get())) {
            to_send_.pop_front();
            continue;
        }
        // ETOOMANYREFS: the user has too many descriptors under way (unix(7)).
        if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS)
            return;
        gone_ = true;
    }
}

void PieceSender::send_rest(const store::StoredSnapshot& snapshot, const GoOn& go_on) {
    const auto end = steady_clock::now() + kProcessBusy; // it may not even have been started
    for (send(snapshot); !gone_ && !to_send_.empty() && steady_clock::now() < end && go_on(kSendAgain);)
        send(snapshot);
}

void PieceSender::run(const store::StoredSnapshot& snapshot, const GoOn& go_on) {
    BackgroundWork work(kPiecesAtOnce);
    for (unsigned i = 0; i < kPiecesAtOnce; ++i)
        work.add([&] {
            for (auto piece = next(); piece && go_on(kNoTime) && bring(snapshot, *piece, go_on); piece = next())
                send(snapshot);
        });
    work.finish();
    send_rest(snapshot, go_on);
}

} // namespace kvmserver::daemon
