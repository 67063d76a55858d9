#include "tests/unit/memory/world.hpp"
#include "tinykvm/machine/clock.hpp"
#include "tinykvm/kvm/vcpu.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

namespace {
std::uint64_t tsc() {
    std::uint32_t low, high;
    asm volatile("lfence\n rdtsc" : "=a"(low), "=d"(high)::"memory");
    return (std::uint64_t{high} << 32) | low;
}
// As the guest kernel and the vDSO compute it.
std::uint64_t guest_mono(const abi::TimePage& page) {
    return page.mono_base_ns +
           static_cast<std::uint64_t>((static_cast<unsigned __int128>(tsc() - page.tsc_base) * page.mult) >> 32);
}
std::uint32_t khz() {
    const kvm::Vm vm = kvm_device().create_vm();
    return kvm::Vcpu(kvm_device(), vm).tsc_khz();
}
} // namespace

TEST_CASE("the guest's time does not go back over refreshes and follows the host's") {
    for (const int skew : {0, 3, -3}) { // percent that the rate is wrong by
        GuestClock clock(static_cast<std::uint32_t>(khz() * std::int64_t{100 + skew} / 100));
        abi::TimePage page{};
        clock.refresh(page);
        std::uint64_t last = guest_mono(page);
        for (int i = 0; i < 200; ++i) {
            if (i % 20 == 0)
                ::usleep(500);
            clock.refresh(page);
            const std::uint64_t now = guest_mono(page);
            REQUIRE(now >= last);
            last = now;
        }
        if (skew == 0)
            CHECK(std::llabs(static_cast<long long>(last - host_mono_ns())) < 50'000'000);
        CHECK(std::llabs(static_cast<long long>(page.real_base_ns - host_real_ns())) < 1'000'000'000);
    }
}

TEST_CASE("after a restore time goes on from where it was") {
    const std::uint64_t later = host_mono_ns() + 3'600'000'000'000ull;
    GuestClock clock(khz());
    clock.continue_from(later);
    CHECK(clock.now_mono() >= later);
    abi::TimePage page{};
    clock.refresh(page);
    CHECK(page.mono_base_ns >= later);
    CHECK(page.mono_base_ns < later + 1'000'000'000);
    // A snapshot of a host that was up for a shorter time: nothing is to be made up for.
    clock.continue_from(1);
    CHECK(clock.now_mono() >= later);
    // Deadlines are told in the host's time.
    CHECK(std::llabs(static_cast<long long>(clock.to_host_mono(clock.now_mono()) - host_mono_ns())) < 100'000'000);
    CHECK(clock.to_host_mono(0) == 0);
    CHECK(clock.to_host_mono(5) == 0);
}
