// The guest's clocks: a time page that turns the TSC into nanoseconds, refreshed at every entry.
#pragma once
#include <cstdint>

#include "tinykvm/abi/guest_kernel.hpp"

namespace tinykvm {

// The clocks of a machine when it last waited, in nanoseconds.
struct ClockTimes {
    std::uint64_t mono = 0; // the guest's CLOCK_MONOTONIC
    std::uint64_t boot = 0; // the guest's CLOCK_BOOTTIME; 0: unknown, `mono` is used
    std::uint64_t real = 0; // the host's CLOCK_REALTIME; 0: unknown
};

// Derives the guest's clocks from the host's and keeps the time page up to date.
class GuestClock {
public:
    // `tsc_khz` is the guest's TSC rate. The guest's TSC must equal the host's.
    explicit GuestClock(std::uint32_t tsc_khz);

    // Writes the current times and rate. Until the next resume(), the guest's monotonic time never goes back.
    void refresh(abi::TimePage& page);
    // The guest's times at a recent time of the host's CLOCK_MONOTONIC.
    ClockTimes at(std::uint64_t host_mono_ns) const;
    // Converts a guest CLOCK_MONOTONIC time to the host's.
    std::uint64_t to_host_mono(std::uint64_t guest_ns) const;
    // Continues as after a suspend. CLOCK_MONOTONIC goes on from `then`. CLOCK_BOOTTIME has advanced by the real time
    // that passed since `then`, plus `slept_ns`.
    void resume(const ClockTimes& then, std::uint64_t slept_ns = 0);
    // Continues without a gap: monotonic and boot time follow the host's clocks, but are at least those in `then`.
    void continue_from(const ClockTimes& then);
    // From the next refresh() on, CLOCK_REALTIME is this much ahead of the host's.
    void set_real_ahead(std::uint64_t ns) { real_ahead_ns_ = ns; }

private:
    void follow_rate(std::uint64_t tsc, std::uint64_t mono);

    std::uint64_t ticks_a_us_;
    std::uint64_t nominal_mult_, mult_; // ns per tick, 32.32 fixed point: reported by KVM, measured
    // The guest's clock minus the host's.
    std::int64_t offset_ns_ = 0, boot_offset_ns_ = 0;
    std::uint64_t real_ahead_ns_ = 0;
    std::uint64_t ahead_ns_ = 0; // how far the page is ahead of that, because an earlier page promised it
    std::uint64_t rate_tsc_ = 0, rate_mono_ = 0;                 // start of the current measurement of the rate
    std::uint64_t last_tsc_ = 0, last_mono_ = 0, last_mult_ = 0; // the page's content
};

std::uint64_t host_mono_ns();
std::uint64_t host_real_ns();
std::uint64_t host_boot_ns();
std::uint64_t thread_cpu_ns(); // CPU time of the calling thread, including that of machines it runs

} // namespace tinykvm
