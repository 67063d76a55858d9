// The guest's clocks: a time page that turns the TSC into nanoseconds, refreshed at every entry.
#pragma once
#include <cstdint>

#include "tinykvm/abi/guest_kernel.hpp"

namespace tinykvm {

// The clocks of a machine when it last waited, in nanoseconds.
struct ClockTimes {
    std::uint64_t mono = 0; // of the guest: CLOCK_MONOTONIC
    std::uint64_t boot = 0; // of the guest: CLOCK_BOOTTIME; 0: not known, it is taken for `mono`
    std::uint64_t real = 0; // of the host: CLOCK_REALTIME; 0: not known
};

class GuestClock {
public:
    // `tsc_khz` is the guest's TSC rate; the guest's TSC is the host's.
    explicit GuestClock(std::uint32_t tsc_khz);

    // Writes what holds now. Monotonic time never goes back with respect to what the page said before.
    void refresh(abi::TimePage& page);
    // The guest's times when the host's monotonic time was so much (now, or lately), and the host's monotonic time of
    // one of the guest's monotonic times.
    ClockTimes at(std::uint64_t host_mono_ns) const;
    std::uint64_t to_host_mono(std::uint64_t guest_ns) const;
    // As after a suspend: monotonic time is what it was, boot time has gone on with the time of day, and by `slept_ns`
    // more.
    void resume(const ClockTimes& then, std::uint64_t slept_ns = 0);
    // As if nothing had been: monotonic and boot time are the host's, but at least what they were.
    void continue_from(const ClockTimes& then);

private:
    void follow_rate(std::uint64_t tsc, std::uint64_t mono);

    std::uint64_t ticks_a_us_;
    std::uint64_t nominal_mult_, mult_; // ns a tick, 32.32 fixed point: as KVM says, as it was seen to be
    // The guest's clock minus the host's.
    std::int64_t offset_ns_ = 0, boot_offset_ns_ = 0;
    std::uint64_t ahead_ns_ = 0; // of that the page is, for it said so before
    std::uint64_t rate_tsc_ = 0, rate_mono_ = 0;
    std::uint64_t last_tsc_ = 0, last_mono_ = 0, last_mult_ = 0; // what the page says
};

std::uint64_t host_mono_ns();
std::uint64_t host_real_ns();
std::uint64_t host_boot_ns();
std::uint64_t thread_cpu_ns(); // of the calling thread; what a machine runs on it is its own too

} // namespace tinykvm
