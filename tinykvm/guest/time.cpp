// Clocks from the time page, CPU time, and sleeping.
#include "tinykvm/guest/calls.hpp"
#include "tinykvm/guest/timers.hpp"

namespace gk {
namespace {

// The host may refresh the page between any two of these instructions.
u64 read_clock(const volatile u64& base) {
    for (;;) {
        const u64 tsc_base = gk_time_page.tsc_base;
        const u64 base_ns = base, mult = gk_time_page.mult;
        u32 low, high;
        asm volatile("lfence\n rdtsc" : "=a"(low), "=d"(high)::"memory");
        const u64 tsc = (u64{high} << 32) | low;
        if (tsc_base != gk_time_page.tsc_base || base_ns != base)
            continue;
        const u64 delta = tsc > tsc_base ? tsc - tsc_base : 0;
        return base_ns + static_cast<u64>((static_cast<unsigned __int128>(delta) * mult) >> 32);
    }
}

// CPU time passes while a thread runs, including its time in the guest kernel and in host calls. It is charged to the
// current thread at a switch, and when all threads wait.
u64 charged_at;
u64 process_ns;

// Negative clock ids (include/linux/posix-timers.h): 29 bits of an inverted process or thread number, one bit that says
// whether it is a thread, two bits for the kind of CPU time.
Clock cpu_clock_of(i32 id) {
    constexpr i32 kThreadBit = 4, kKinds = 3;
    if ((id & 3) >= kKinds)
        return {};
    const i32 number = ~(id >> 3);
    if (id & kThreadBit) {
        const Thread* t = number == 0 ? current : thread_of(number);
        return t ? Clock{ClockKind::thread_cpu, t->tid} : Clock{};
    }
    return is_own_process(number) || number == static_cast<i32>(current->tid) ? Clock{ClockKind::process_cpu} : Clock{};
}

} // namespace

Clock clock_of(i32 id) {
    switch (id) {
    case kRealtime:
    case kRealtimeCoarse:
    case kRealtimeAlarm:
    case kTai: return {ClockKind::realtime};
    case kMonotonic:
    case kMonotonicRaw:
    case kMonotonicCoarse: return {ClockKind::monotonic};
    case kBoottime:
    case kBoottimeAlarm: return {ClockKind::boottime};
    case kProcessCpu: return {ClockKind::process_cpu};
    case kThreadCpu: return {ClockKind::thread_cpu, current->tid};
    default: return id < 0 ? cpu_clock_of(id) : Clock{};
    }
}

u64 now_of(const Clock& clock) {
    switch (clock.kind) {
    case ClockKind::realtime: return now_real();
    case ClockKind::boottime: return now_boot();
    case ClockKind::process_cpu: return cpu_ns();
    case ClockKind::thread_cpu: {
        const Thread* t = thread_of(static_cast<i32>(clock.tid));
        return t ? thread_cpu_ns(t) : 0;
    }
    default: return now_mono();
    }
}

u64 now_mono() { return read_clock(gk_time_page.mono_base_ns); }
u64 now_real() { return read_clock(gk_time_page.real_base_ns); }
u64 now_boot() { return read_clock(gk_time_page.boot_base_ns); }

void init_time() { charged_at = now_mono(); }
void charge_cpu(u64 now) {
    const u64 used = now > charged_at ? now - charged_at : 0;
    current->cpu_ns += used;
    process_ns += used;
    charged_at = now;
}
void skip_cpu(u64 now) { charged_at = now; }

u64 cpu_ns() {
    const u64 now = now_mono();
    return process_ns + (now > charged_at ? now - charged_at : 0);
}
u64 thread_cpu_ns(const Thread* t) {
    const u64 now = now_mono();
    return t->cpu_ns + (t == current && now > charged_at ? now - charged_at : 0);
}

bool valid(const Timespec& t) { return t.sec >= 0 && t.nsec >= 0 && t.nsec < 1'000'000'000; }
u64 to_ns(const Timespec& t) {
    constexpr u64 kLongest = 4'000'000'000; // seconds; leaves the bit kByBootTime of a deadline free
    if (static_cast<u64>(t.sec) > kLongest)
        return kLongest * 1'000'000'000;
    return static_cast<u64>(t.sec) * 1'000'000'000 + static_cast<u64>(t.nsec);
}
u64 to_ns(const Timeval& t) { return to_ns(Timespec{t.sec, t.usec * 1000}); }
Timespec from_ns(u64 ns) { return {static_cast<i64>(ns / 1'000'000'000), static_cast<i64>(ns % 1'000'000'000)}; }

// A relative time on CLOCK_REALTIME uses CLOCK_MONOTONIC (kernel/time/hrtimer.c, __hrtimer_init).
u64 expiry_of(const Clock& clock, bool absolute, const Timespec& t) {
    const bool by_boot = clock.kind == ClockKind::boottime || (clock.kind == ClockKind::realtime && absolute);
    const u64 ns = to_ns(t), now = absolute ? now_of(clock) : 0;
    return now_like(by_boot ? kByBootTime : 0) + (ns > now ? ns - now : 0);
}

u64 deadline_of(i32 id, bool absolute, const Timespec& t) {
    const Clock clock = clock_of(id);
    return absolute && to_ns(t) <= now_of(clock) ? 0 : expiry_of(clock, absolute, t);
}

u64 now_like(u64 deadline) { return deadline & kByBootTime ? now_boot() | kByBootTime : now_mono(); }

u64 mono_of(u64 deadline) {
    if (deadline == kNever || !(deadline & kByBootTime)) [[likely]]
        return deadline;
    const u64 now = now_like(deadline);
    return deadline <= now ? 0 : now_mono() + (deadline - now);
}

u64 next_timer() {
    const u64 all[] = {next_timerfd(), next_interval_timer(), next_posix_timer()};
    u64 next = kNever;
    for (const u64 one : all)
        next = earlier(next, one);
    return next;
}

void fire_timers(u64 now) {
    fire_timerfds();
    fire_interval_timers(now);
    fire_posix_timers();
}

i64 sys_clock_gettime(const Args& c) {
    const Clock clock = clock_of(static_cast<i32>(c.a[0]));
    if (clock.kind == ClockKind::none)
        return -EINVAL;
    return put_user(c.a[1], from_ns(now_of(clock))) ? 0 : -EFAULT;
}

i64 sys_clock_getres(const Args& c) {
    const i32 id = static_cast<i32>(c.a[0]);
    if (clock_of(id).kind == ClockKind::none)
        return -EINVAL;
    const Timespec resolution{0, 1}; // the coarse clocks have the same resolution as the others
    return !c.a[1] || put_user(c.a[1], resolution) ? 0 : -EFAULT;
}

// The clocks of a machine cannot be set.
i64 sys_clock_settime(const Args& c) {
    const i32 id = static_cast<i32>(c.a[0]);
    const Clock clock = clock_of(id);
    if (clock.kind == ClockKind::none || (clock.kind != ClockKind::realtime && id >= 0) || id == kRealtimeCoarse ||
        id == kTai || id == kRealtimeAlarm)
        return -EINVAL;
    Timespec t;
    if (!get_user(t, c.a[1]))
        return -EFAULT;
    return id >= 0 && !valid(t) ? -EINVAL : -EPERM;
}

i64 sys_gettimeofday(const Args& c) {
    if (c.a[0] && !put_user(c.a[0], to_timeval(now_real())))
        return -EFAULT;
    if (c.a[1] && !put_user(c.a[1], u64{0}))
        return -EFAULT;
    return 0;
}

i64 sys_time(const Args& c) {
    const i64 now = static_cast<i64>(now_real() / 1'000'000'000);
    return !c.a[0] || put_user(c.a[0], now) ? now : -EFAULT;
}

i64 sys_times(const Args& c) {
    const i64 ticks = static_cast<i64>(cpu_ns() / 10'000'000);
    const i64 out[4] = {ticks, 0, 0, 0};
    if (c.a[0] && !copy_to_user(c.a[0], out, sizeof(out)))
        return -EFAULT;
    return static_cast<i64>(now_mono() / 10'000'000);
}

i64 sys_getrusage(const Args& c) {
    constexpr i32 kChildren = -1, kThread = 1;
    struct {
        Timeval user, system;
        u64 max_rss_kib, unused[3], minor_faults, more[9];
    } out{};
    static_assert(sizeof(out) == 144);
    const i32 who = static_cast<i32>(c.a[0]);
    if (who < kChildren || who > kThread)
        return -EINVAL;
    if (who != kChildren) {
        out.user = to_timeval(who == kThread ? thread_cpu_ns(current) : cpu_ns());
        out.max_rss_kib = gk_shared_page.peak_bytes / 1024;
        out.minor_faults = gk_shared_page.page_faults;
    }
    return put_user(c.a[1], out) ? 0 : -EFAULT;
}

namespace {
i64 sleep_until(u64 deadline, bool absolute, u64 rest) {
    while (!has_passed(deadline)) {
        block(deadline);
        if (signal_pending(current)) {
            const u64 now = now_like(deadline);
            if (now >= deadline)
                return 0;
            if (!absolute && rest && !put_user(rest, from_ns(deadline - now)))
                return -EFAULT;
            return -EINTR; // not restarted even with SA_RESTART (signal(7))
        }
    }
    return 0;
}

// Sleeps until other threads have used that much CPU time. CPU time passes no faster than real time, so it sleeps for
// the difference and checks again.
i64 sleep_until_used(const Clock& clock, u64 target, bool absolute, u64 rest) {
    constexpr u64 kMin = 10'000'000;
    for (u64 used; (used = now_of(clock)) < target;) {
        block(now_mono() + (target - used > kMin ? target - used : kMin));
        if (!signal_pending(current))
            continue;
        const u64 now = now_of(clock);
        if (!absolute && rest && now < target && !put_user(rest, from_ns(target - now)))
            return -EFAULT;
        return now < target ? -EINTR : 0;
    }
    return 0;
}
} // namespace

i64 sys_nanosleep(const Args& c) {
    Timespec t;
    if (!get_user(t, c.a[0]))
        return -EFAULT;
    if (!valid(t))
        return -EINVAL;
    return sleep_until(deadline_of(kMonotonic, false, t), false, c.a[1]);
}

i64 sys_clock_nanosleep(const Args& c) {
    Timespec t;
    const i32 id = static_cast<i32>(c.a[0]);
    const Clock clock = clock_of(id);
    if (clock.kind == ClockKind::none)
        return is_file_clock(id) ? -EOPNOTSUPP : -EINVAL;
    if (id == kThreadCpu || id == kMonotonicRaw || id == kMonotonicCoarse || id == kRealtimeCoarse)
        return -EOPNOTSUPP;
    if (!get_user(t, c.a[2]))
        return -EFAULT;
    if (!valid(t))
        return -EINVAL;
    if (id == kRealtimeAlarm || id == kBoottimeAlarm)
        return -EPERM; // programs never have CAP_WAKE_ALARM
    const bool absolute = (c.a[1] & 1) != 0;
    if (!clock.is_cpu())
        return sleep_until(deadline_of(id, absolute, t), absolute, c.a[3]);
    if (clock.kind == ClockKind::thread_cpu && clock.tid == current->tid)
        return -EINVAL; // the thread would wait for itself
    return sleep_until_used(clock, (absolute ? 0 : now_of(clock)) + to_ns(t), absolute, c.a[3]);
}

} // namespace gk
