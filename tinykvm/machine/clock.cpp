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

} // namespace

std::uint64_t host_mono_ns() { return clock_ns(CLOCK_MONOTONIC); }
std::uint64_t host_real_ns() { return clock_ns(CLOCK_REALTIME); }

GuestClock::GuestClock(std::uint32_t tsc_khz)
    : mult_(static_cast<std::uint64_t>((static_cast<unsigned __int128>(1'000'000) << 32) / tsc_khz)) {}

void GuestClock::refresh(abi::TimePage& page) {
    const std::uint64_t tsc = read_tsc();
    std::uint64_t mono = host_mono_ns() + offset_ns_;
    if (last_tsc_ != 0 && tsc >= last_tsc_) {
        // What a guest that reads its clock at this very moment would compute from the page as it is.
        const auto promised =
            last_mono_ + static_cast<std::uint64_t>((static_cast<unsigned __int128>(tsc - last_tsc_) * mult_) >> 32);
        mono = std::max(mono, promised);
    }
    page.tsc_base = tsc;
    page.mono_base_ns = mono;
    page.real_base_ns = host_real_ns();
    page.boot_base_ns = clock_ns(CLOCK_BOOTTIME) + offset_ns_;
    page.mult = mult_;
    last_tsc_ = tsc;
    last_mono_ = mono;
}

std::uint64_t GuestClock::now_mono() const { return host_mono_ns() + offset_ns_; }

std::uint64_t GuestClock::to_host_mono(std::uint64_t guest_ns) const {
    return guest_ns > offset_ns_ ? guest_ns - offset_ns_ : 0;
}

void GuestClock::continue_from(std::uint64_t guest_ns) {
    const std::uint64_t now = host_mono_ns();
    if (guest_ns > now + offset_ns_)
        offset_ns_ = guest_ns - now;
}

} // namespace tinykvm
