#include "src/http/pace.hpp"

namespace kvmserver::http {

Pace::Pace(asio::io_context& io, std::uint64_t rate, std::chrono::milliseconds window,
           std::function<std::uint64_t()> queued)
    : rate_(rate), window_(window), queued_(std::move(queued)), deadline_(io) {}

void Pace::begin(const std::shared_ptr<void>& owner, std::function<void()> too_slow) {
    too_slow_ = std::move(too_slow);
    deadline_.begin(std::shared_ptr<Deadline::Owner>(owner, this));
}

void Pace::reset() {
    waited_ = {};
    moved_ = 0;
}

void Pace::wait_begins() {
    if (rate_ == 0)
        return;
    began_ = Clock::now();
    queued_then_.reset(); // not read here: one more system call per write would cost too much
    deadline_.set_in(std::chrono::duration_cast<std::chrono::milliseconds>(window_ - waited_));
}

void Pace::wait_ends(std::uint64_t bytes) {
    if (rate_ == 0)
        return;
    deadline_.set_in(std::chrono::milliseconds(0));
    waited_ += Clock::now() - began_;
    moved_ += bytes;
    if (waited_ >= window_ && slow())
        too_slow_();
}

// Ends the window and starts the next. Returns whether too few bytes moved.
bool Pace::slow() {
    const double seconds = std::chrono::duration<double>(waited_).count();
    const bool too_little = static_cast<double>(moved_) < static_cast<double>(rate_) * seconds;
    reset();
    return too_little;
}

void Pace::deadline_passed() {
    const Clock::time_point now = Clock::now();
    const std::uint64_t queued = queued_ ? queued_() : 0;
    waited_ += now - began_;
    began_ = now;
    if (queued_ && !queued_then_) { // unknown how much left the kernel's queue in this window: decide in the next
        reset();
    } else {
        moved_ += queued_ && *queued_then_ > queued ? *queued_then_ - queued : 0;
        if (slow())
            return too_slow_();
    }
    queued_then_ = queued;
    deadline_.set_in(window_);
}

} // namespace kvmserver::http
