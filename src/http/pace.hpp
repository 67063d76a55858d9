// Detects clients that send or take bytes too slowly.
//
// Only time in which the front waits for nothing but the client counts. The average is taken over windows (of 30 s)
// within a request, so a byte now and then is not enough.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>

#include "src/http/deadline.hpp"

namespace kvmserver::http {

class Pace final : private Deadline::Owner {
public:
    // `rate`: bytes per second over each `window`; 0: no limit. `queued`, for sending: the bytes in the kernel's send
    // queue. The client may take these while no write completes.
    Pace(asio::io_context& io, std::uint64_t rate, std::chrono::milliseconds window,
         std::function<std::uint64_t()> queued);
    // `owner` keeps this object alive. `too_slow` is called during a wait for the client.
    void begin(const std::shared_ptr<void>& owner, std::function<void()> too_slow);
    void end() { deadline_.end(); }
    void reset(); // at the start of a request
    // Call at the beginning and end of each wait for the client; `bytes` moved meanwhile.
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
    std::optional<std::uint64_t> queued_then_; // at the start of this window, if it started within a wait
};

} // namespace kvmserver::http
