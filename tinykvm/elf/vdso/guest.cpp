// Guest code: the functions of the vDSO. Freestanding, without data, relocations or calls outside.
#include <cstdint>

#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/abi/layout.hpp"

namespace {

using tinykvm::abi::TimePage;

// From the kernel's ABI (linux/time.h, asm/unistd_64.h).
constexpr int kClockRealtime = 0;
constexpr int kClockMonotonic = 1;
constexpr int kClockMonotonicRaw = 4;
constexpr int kClockRealtimeCoarse = 5;
constexpr int kClockMonotonicCoarse = 6;
constexpr int kClockBoottime = 7;
constexpr long kSysClockGettime = 228;
constexpr long kSysClockGetres = 229;
constexpr std::uint64_t kSecond = 1'000'000'000;

struct Timespec {
    long seconds, nanoseconds;
};
struct Timeval {
    long seconds, microseconds;
};
struct Timezone {
    int minutes_west, dst_time;
};

// Calls the guest kernel as a stub does (memory/code_stubs.hpp), with the return address in RCX. SYSCALL would leave
// the guest on some hosts.
long system_call(long number, long a, void* b) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): its address is fixed
    const auto* header = reinterpret_cast<const tinykvm::abi::KernelHeader*>(tinykvm::layout::kKernelImage);
    long result;
    asm volatile("leaq 1f(%%rip), %%rcx\n\tjmpq *%[entry]\n1:"
                 : "=a"(result)
                 : "a"(number), "D"(a), "S"(b), [entry] "m"(header->stub_entry)
                 : "rcx", "r11", "memory", "cc");
    return result;
}

// LFENCE keeps RDTSC from being executed before the preceding loads and branches (Intel SDM vol. 2, RDTSC).
std::uint64_t read_tsc() {
    std::uint32_t low, high;
    asm volatile("lfence\n\trdtsc" : "=a"(low), "=d"(high)::"memory");
    return std::uint64_t{high} << 32 | low;
}

// Nanoseconds of one of the time page's clocks.
//
// The host writes the page only while the guest does not run, but it may preempt the guest in the middle of this
// function and then write. Every such write changes tsc_base. If tsc_base has not changed, all values read belong
// together.
std::uint64_t now(std::uint64_t TimePage::*clock) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): its address is fixed
    const volatile TimePage* page = reinterpret_cast<const volatile TimePage*>(tinykvm::layout::kTimePage);
    while (true) {
        const std::uint64_t base = page->tsc_base;
        const std::uint64_t mult = page->mult;
        const std::uint64_t start = page->*clock;
        const std::uint64_t tsc = read_tsc();
        if (page->tsc_base != base)
            continue;
        // The host's base may be a little ahead of this CPU's counter. Time then stands still and never goes back.
        const std::uint64_t ticks = tsc > base ? tsc - base : 0;
        return start + static_cast<std::uint64_t>((static_cast<unsigned __int128>(ticks) * mult) >> 32);
    }
}

// The time page's field for a clock; null when only the guest kernel knows the clock.
std::uint64_t TimePage::*field_of(int id) {
    switch (id) {
    case kClockRealtime:
    case kClockRealtimeCoarse: return &TimePage::real_base_ns;
    case kClockMonotonic:
    case kClockMonotonicRaw:
    case kClockMonotonicCoarse: return &TimePage::mono_base_ns;
    case kClockBoottime: return &TimePage::boot_base_ns;
    default: return nullptr;
    }
}

} // namespace

// The names that a libc looks up are reserved for just that.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {

int __vdso_clock_gettime(int id, Timespec* out) {
    const auto field = field_of(id);
    if (!field)
        return static_cast<int>(system_call(kSysClockGettime, id, out));
    const std::uint64_t ns = now(field);
    out->seconds = static_cast<long>(ns / kSecond);
    out->nanoseconds = static_cast<long>(ns % kSecond);
    return 0;
}

int __vdso_gettimeofday(Timeval* out, Timezone* zone) {
    if (out) {
        const std::uint64_t ns = now(&TimePage::real_base_ns);
        out->seconds = static_cast<long>(ns / kSecond);
        out->microseconds = static_cast<long>(ns % kSecond / 1000);
    }
    if (zone) {
        zone->minutes_west = 0;
        zone->dst_time = 0;
    }
    return 0;
}

long __vdso_time(long* out) {
    const long seconds = static_cast<long>(now(&TimePage::real_base_ns) / kSecond);
    if (out)
        *out = seconds;
    return seconds;
}

int __vdso_clock_getres(int id, Timespec* out) {
    if (!field_of(id))
        return static_cast<int>(system_call(kSysClockGetres, id, out));
    if (out) {
        out->seconds = 0;
        out->nanoseconds = 1; // the coarse clocks have the same resolution here
    }
    return 0;
}

// A machine has one vCPU.
int __vdso_getcpu(unsigned* cpu, unsigned* node, void*) {
    if (cpu)
        *cpu = 0;
    if (node)
        *node = 0;
    return 0;
}

} // extern "C"
// NOLINTEND(bugprone-reserved-identifier)
