// The guest's clocks: a time page that turns the TSC into nanoseconds, refreshed at every entry.
#pragma once
#include <cstdint>

#include "tinykvm/guest/abi.hpp"

namespace tinykvm {

class GuestClock {
public:
    // `tsc_khz` is the guest's TSC rate; the guest's TSC is the host's.
    explicit GuestClock(std::uint32_t tsc_khz);

    // Writes what holds now. Monotonic time never goes back with respect to what the page said before.
    void refresh(abi::TimePage& page);
    // The guest's monotonic time as of now, and the host's monotonic time of a guest time.
    std::uint64_t now_mono() const;
    std::uint64_t to_host_mono(std::uint64_t guest_ns) const;
    // After a restore: monotonic time goes on from at least `guest_ns`.
    void continue_from(std::uint64_t guest_ns);

private:
    void follow_rate(std::uint64_t tsc, std::uint64_t mono);

    std::uint64_t ticks_a_us_;
    std::uint64_t nominal_mult_, mult_; // ns a tick, 32.32 fixed point: as KVM says, as it was seen to be
    std::uint64_t offset_ns_ = 0;       // guest monotonic - host monotonic
    std::uint64_t rate_tsc_ = 0, rate_mono_ = 0;
    std::uint64_t last_tsc_ = 0, last_mono_ = 0, last_mult_ = 0; // what the page says
};

std::uint64_t host_mono_ns();
std::uint64_t host_real_ns();
std::uint64_t thread_cpu_ns(); // of the calling thread; what a machine runs on it is its own too

} // namespace tinykvm
