// The guest's clocks against the host's.
#include <time.h>

#include "tests/kvm/world.hpp"
#include "tinykvm/kvm/vm_pool.hpp"
#include "tinykvm/machine/clock.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

namespace {

std::uint64_t tsc_now() {
    std::uint32_t low, high;
    asm volatile("lfence\n rdtsc\n lfence" : "=a"(low), "=d"(high)::"memory");
    return (std::uint64_t{high} << 32) | low;
}

// As the vDSO does (elf/vdso/guest.cpp).
std::uint64_t guest_ns(const abi::TimePage& page, std::uint64_t base, std::uint64_t tsc) {
    return base + static_cast<std::uint64_t>((static_cast<unsigned __int128>(tsc - page.tsc_base) * page.mult) >> 32);
}

struct Off {
    std::int64_t least = 0, most = 0; // ns: how far a clock was outside of two readings of the host's around it
    void add(std::uint64_t before, std::uint64_t guest, std::uint64_t after) {
        if (guest < before)
            least = std::min(least, static_cast<std::int64_t>(guest - before));
        if (guest > after)
            most = std::max(most, static_cast<std::int64_t>(guest - after));
    }
};

} // namespace

TEST_CASE("the guest's clocks are the host's to a microsecond, whatever interrupts there are") {
    GuestClock clock(kvm::PreparedVm(kvm_device()).vcpu.tsc_khz());
    abi::TimePage page{};
    Off mono, real;
    std::uint64_t last = 0;
    const std::uint64_t end = host_mono_ns() + 3'000'000'000;
    for (unsigned n = 0; host_mono_ns() < end; ++n) {
        clock.refresh(page);
        // Now and then as long as a program computes between two exits.
        if (n % 5000 == 4999) {
            const timespec while_long{0, 200'000'000};
            ::nanosleep(&while_long, nullptr);
        }
        const std::uint64_t real_before = host_real_ns(), before = host_mono_ns(), tsc = tsc_now(), after = host_mono_ns(), real_after = host_real_ns();
        const std::uint64_t now = guest_ns(page, page.mono_base_ns, tsc);
        REQUIRE(now >= last);
        last = now;
        mono.add(before, now, after);
        real.add(real_before, guest_ns(page, page.real_base_ns, tsc), real_after);
    }
    CHECK(mono.least > -1000);
    CHECK(mono.most < 1000);
    CHECK(real.least > -1000);
    CHECK(real.most < 1000);
}
