// Whether a client takes or sends bytes fast enough while it is waited for.
//
// Only the time counts in which nothing but the client is waited for, in windows (of 30 s) over all of a request: one
// that moves a byte now and then is found out as well.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>

#include "src/http/deadline.hpp"

namespace kvmserver::http {

class Pace final : private Deadline::Owner {
public:
    // `rate`: bytes a second over each `window`, 0 for any. `queued`, for what is sent: bytes that the kernel still has
    // to bring to the client, which takes them though no write ends meanwhile.
    Pace(asio::io_context& io, std::uint64_t rate, std::chrono::milliseconds window,
         std::function<std::uint64_t()> queued);
    // `owner` keeps this alive; `too_slow` is called while the client is waited for.
    void begin(const std::shared_ptr<void>& owner, std::function<void()> too_slow);
    void end() { deadline_.end(); }
    void reset(); // a new request
    void wait_begins();
    void wait_ends(std::uint64_t bytes);

private:
    void deadline_passed() override;
    bool slow();

    const std::uint64_t rate_;
    const std::chrono::milliseconds window_;
    const std::function<std::uint64_t()> queued_;
    std::function<void()> too_slow_;
    Deadline deadline_;
    Clock::time_point began_;
    Clock::duration waited_{0};                // in this window, before began_
    std::uint64_t moved_ = 0;                  // in this window
    std::optional<std::uint64_t> queued_then_; // when this window began, if it began within a wait
};

} // namespace kvmserver::http
