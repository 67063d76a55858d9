#include "tinykvm/machine/clock.hpp"

#include <time.h>

#include <algorithm>

namespace tinykvm {
namespace {

std::uint64_t clock_ns(clockid_t id) {
    timespec t{};
    ::clock_gettime(id, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(t.tv_nsec);
}

std::uint64_t read_tsc() {
    std::uint32_t low, high;
    asm volatile("lfence\n rdtsc" : "=a"(low), "=d"(high)::"memory");
    return (std::uint64_t{high} << 32) | low;
}

std::uint64_t scaled(std::uint64_t ticks, std::uint64_t mult) {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(ticks) * mult) >> 32);
}

// Limits a time from a snapshot file, so that differences of two times fit a signed 64-bit value.
std::uint64_t sound(std::uint64_t ns) { return std::min(ns, std::uint64_t{1} << 62); }

std::uint64_t plus(std::uint64_t ns, std::int64_t offset) { return ns + static_cast<std::uint64_t>(offset); }

std::int64_t difference(std::uint64_t guest, std::uint64_t host) { return static_cast<std::int64_t>(guest - host); }

// The host's clocks, each with the TSC at the middle of its reading.
struct Reading {
    std::uint64_t mono, real, boot;
    std::uint64_t mono_tsc, real_tsc, boot_tsc;
    std::uint64_t took; // duration in TSC ticks
};

Reading read_once() {
    Reading r{};
    const std::uint64_t a = read_tsc();
    r.mono = clock_ns(CLOCK_MONOTONIC);
    const std::uint64_t b = read_tsc();
    r.real = clock_ns(CLOCK_REALTIME);
    const std::uint64_t c = read_tsc();
    r.boot = clock_ns(CLOCK_BOOTTIME);
    const std::uint64_t d = read_tsc();
    r.mono_tsc = a + (b - a) / 2;
    r.real_tsc = b + (c - b) / 2;
    r.boot_tsc = c + (d - c) / 2;
    r.took = d - a;
    return r;
}

// Repeats a reading that took more than 1 us, and keeps the fastest. An interrupt during a reading makes the clocks
// wrong by its duration: microseconds, about ten of them in a virtual machine.
Reading read_clocks(std::uint64_t ticks_a_us) {
    constexpr int kTries = 5;
    Reading best = read_once();
    for (int i = 1; i < kTries && best.took > ticks_a_us; ++i)
        if (const Reading again = read_once(); again.took < best.took)
            best = again;
    return best;
}

} // namespace

std::uint64_t host_mono_ns() { return clock_ns(CLOCK_MONOTONIC); }
std::uint64_t host_real_ns() { return clock_ns(CLOCK_REALTIME); }
std::uint64_t host_boot_ns() { return clock_ns(CLOCK_BOOTTIME); }
std::uint64_t thread_cpu_ns() { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

GuestClock::GuestClock(std::uint32_t tsc_khz)
    : ticks_a_us_(tsc_khz / 1000),
      nominal_mult_(static_cast<std::uint64_t>((static_cast<unsigned __int128>(1'000'000) << 32) / tsc_khz)),
      mult_(nominal_mult_) {}

// Measures the TSC rate. KVM reports it in whole kHz and without the adjustments of the host's clock (NTP).
void GuestClock::follow_rate(std::uint64_t tsc, std::uint64_t mono) {
    constexpr std::uint64_t kLongEnoughNs = 1'000'000'000, kTooLongNs = 600'000'000'000,
                            kOff = 2000; // accepted deviation from the nominal rate: one part in 2000
    if (rate_tsc_ == 0 || tsc <= rate_tsc_ || mono < rate_mono_ || mono - rate_mono_ > kTooLongNs) {
        rate_tsc_ = tsc;
        rate_mono_ = mono;
    } else if (mono - rate_mono_ > kLongEnoughNs) {
        const auto seen =
            static_cast<std::uint64_t>((static_cast<unsigned __int128>(mono - rate_mono_) << 32) / (tsc - rate_tsc_));
        if (seen > nominal_mult_ - nominal_mult_ / kOff && seen < nominal_mult_ + nominal_mult_ / kOff)
            mult_ = seen; // otherwise the TSC or the clock was set
        rate_tsc_ = tsc;
        rate_mono_ = mono;
    }
}

void GuestClock::refresh(abi::TimePage& page) {
    const Reading now = read_clocks(ticks_a_us_);
    follow_rate(now.mono_tsc, now.mono);
    std::uint64_t mono = plus(now.mono, offset_ns_), mult = mult_;
    ahead_ns_ = 0;
    if (last_tsc_ != 0 && now.mono_tsc >= last_tsc_) {
        // `promised` is the time that a guest would compute from the old page right now. If it is ahead of the host,
        // the clock continues from there and runs slower by the difference per second, up to kMaxAheadNs.
        constexpr std::uint64_t kMaxAheadNs = 1'000'000;
        const std::uint64_t promised = last_mono_ + scaled(now.mono_tsc - last_tsc_, last_mult_);
        if (promised > mono) {
            ahead_ns_ = promised - mono;
            mult -= scaled(mult, (std::min(promised - mono, kMaxAheadNs) << 32) / 1'000'000'000);
            mono = promised;
        }
    }
    page.tsc_base = now.mono_tsc;
    page.mono_base_ns = mono;
    page.real_base_ns = now.real + real_ahead_ns_ - scaled(now.real_tsc - now.mono_tsc, mult_);
    page.boot_base_ns = plus(now.boot - scaled(now.boot_tsc - now.mono_tsc, mult_), boot_offset_ns_);
    page.mult = mult;
    last_tsc_ = now.mono_tsc;
    last_mono_ = mono;
    last_mult_ = mult;
}

ClockTimes GuestClock::at(std::uint64_t host_mono) const {
    const std::uint64_t since = host_mono_ns() - host_mono;
    return {plus(host_mono, offset_ns_) + ahead_ns_, plus(host_boot_ns() - since, boot_offset_ns_),
            host_real_ns() - since};
}

std::uint64_t GuestClock::to_host_mono(std::uint64_t guest_ns) const {
    const auto host = static_cast<__int128>(guest_ns) - offset_ns_;
    constexpr std::uint64_t kNever = ~std::uint64_t{0};
    return host < 0 ? 0 : host >= kNever ? kNever - 1 : static_cast<std::uint64_t>(host);
}

void GuestClock::resume(const ClockTimes& then, std::uint64_t slept_ns) {
    const std::uint64_t mono = sound(then.mono), boot = std::max(sound(then.boot), mono), real = host_real_ns();
    const std::uint64_t passed = then.real != 0 && real > then.real ? real - then.real : 0;
    offset_ns_ = difference(mono, host_mono_ns());
    boot_offset_ns_ = difference(boot + passed + sound(slept_ns), host_boot_ns());
    last_tsc_ = 0; // the page's content is of another invocation
}

void GuestClock::continue_from(const ClockTimes& then) {
    const std::uint64_t mono = sound(then.mono), boot = std::max(sound(then.boot), mono);
    offset_ns_ = std::max(offset_ns_, difference(mono, host_mono_ns()));
    boot_offset_ns_ = std::max({boot_offset_ns_, offset_ns_, difference(boot, host_boot_ns())});
}

} // namespace tinykvm
