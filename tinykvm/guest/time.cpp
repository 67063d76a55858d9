// Clocks from the time page, sleeping, timerfd and the real-time interval timer.
#include "tinykvm/guest/calls.hpp"

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

enum : i32 { kRealtime = 0, kMonotonic = 1, kProcessCpu = 2, kThreadCpu = 3, kMonotonicRaw = 4, kRealtimeCoarse = 5,
             kMonotonicCoarse = 6, kBoottime = 7, kRealtimeAlarm = 8, kBoottimeAlarm = 9, kTai = 11 };

bool clock_now(i32 clock, u64& ns) {
    switch (clock) {
    case kRealtime:
    case kRealtimeCoarse:
    case kRealtimeAlarm:
    case kTai: ns = now_real(); return true;
    case kMonotonic:
    case kMonotonicRaw:
    case kMonotonicCoarse: ns = now_mono(); return true;
    case kBoottime:
    case kBoottimeAlarm: ns = read_clock(gk_time_page.boot_base_ns); return true;
    case kProcessCpu:
    case kThreadCpu: ns = cpu_ns(); return true;
    default: break;
    }
    if (clock < 0) { // CPU clock of a process or thread (MAKE_PROCESS_CPUCLOCK): only ours exist
        ns = cpu_ns();
        return true;
    }
    return false;
}

u64 boot_mono;

struct TimerFile : File {
    i32 clock = kMonotonic;
    u64 expiry = 0; // guest monotonic; 0: disarmed
    u64 interval = 0;
    u64 expirations = 0;
    TimerFile* next = nullptr;
    TimerFile* previous = nullptr;
};
TimerFile* timer_files;

void settle(TimerFile* t, u64 now) {
    if (t->expiry == 0 || t->expiry > now)
        return;
    if (t->interval) {
        const u64 n = (now - t->expiry) / t->interval + 1;
        t->expirations += n;
        t->expiry += n * t->interval;
    } else {
        t->expirations += 1;
        t->expiry = 0;
    }
    event_in(t);
}

i64 timer_read(File* f, Cursor& out, i64) {
    auto* t = static_cast<TimerFile*>(f);
    if (out.left < 8)
        return -EINVAL;
    for (;;) {
        settle(t, now_mono());
        if (t->expirations) {
            const u64 n = t->expirations;
            const i64 put = out.put(&n, 8);
            if (put > 0)
                t->expirations = 0;
            return put;
        }
        if (nonblocking(f))
            return -EAGAIN;
        if (wait_io(kNever) == Wake::signal)
            return -ERESTARTSYS;
    }
}
i64 timer_write(File*, Cursor&, i64) { return -EINVAL; }
u32 timer_poll(File* f) {
    auto* t = static_cast<TimerFile*>(f);
    settle(t, now_mono());
    return t->expirations ? POLLIN_ | POLLRDNORM_ : 0;
}
void timer_close(File* f) {
    auto* t = static_cast<TimerFile*>(f);
    (t->previous ? t->previous->next : timer_files) = t->next;
    if (t->next)
        t->next->previous = t->previous;
    destroy(t);
}
const FileOps timer_ops{timer_read, timer_write, timer_poll, timer_close, "anon_inode:[timerfd]"};

struct ItimerSpec { Timespec interval, value; };

void remaining(const TimerFile* t, ItimerSpec& out) {
    const u64 now = now_mono();
    out.interval = from_ns(t->interval);
    out.value = from_ns(t->expiry == 0 ? 0 : t->expiry > now ? t->expiry - now : 1);
}

struct { u64 expiry, interval; } itimer;

struct Timeval { i64 sec, usec; };
u64 to_ns(const Timeval& t) { return static_cast<u64>(t.sec) * 1'000'000'000 + static_cast<u64>(t.usec) * 1000; }
Timeval to_timeval(u64 ns) { return {static_cast<i64>(ns / 1'000'000'000), static_cast<i64>(ns % 1'000'000'000 / 1000)}; }

} // namespace

u64 now_mono() { return read_clock(gk_time_page.mono_base_ns); }
u64 now_real() { return read_clock(gk_time_page.real_base_ns); }
u64 cpu_ns() {
    const u64 total = now_mono() - boot_mono;
    return total > idle_ns ? total - idle_ns : 0;
}
void init_time() { boot_mono = now_mono(); }

bool valid(const Timespec& t) { return t.sec >= 0 && t.nsec >= 0 && t.nsec < 1'000'000'000; }
u64 to_ns(const Timespec& t) {
    if (static_cast<u64>(t.sec) > 9'000'000'000ull)
        return kNever / 2;
    return static_cast<u64>(t.sec) * 1'000'000'000 + static_cast<u64>(t.nsec);
}
Timespec from_ns(u64 ns) { return {static_cast<i64>(ns / 1'000'000'000), static_cast<i64>(ns % 1'000'000'000)}; }

u64 deadline_of(i32 clock, bool absolute, const Timespec& t) {
    const u64 ns = to_ns(t);
    if (!absolute)
        return now_mono() + ns;
    u64 now = 0;
    if (!clock_now(clock, now))
        now = now_mono();
    return ns <= now ? 0 : now_mono() + (ns - now);
}

u64 next_timer() {
    u64 next = itimer.expiry ? itimer.expiry : kNever;
    for (const TimerFile* t = timer_files; t; t = t->next)
        if (t->expiry && t->expiry < next)
            next = t->expiry;
    return next;
}

void fire_timers(u64 now) {
    for (TimerFile* t = timer_files; t; t = t->next)
        settle(t, now);
    if (itimer.expiry && itimer.expiry <= now) {
        itimer.expiry = itimer.interval ? itimer.expiry + ((now - itimer.expiry) / itimer.interval + 1) * itimer.interval : 0;
        send_process_signal(SIGALRM_, {SIGALRM_, 0, 0x80, 0, 0, 0});
    }
}

i64 sys_clock_gettime(const Args& c) {
    u64 ns;
    if (!clock_now(static_cast<i32>(c.a[0]), ns))
        return -EINVAL;
    return put_user(c.a[1], from_ns(ns)) ? 0 : -EFAULT;
}

i64 sys_clock_getres(const Args& c) {
    u64 ns;
    const i32 clock = static_cast<i32>(c.a[0]);
    if (!clock_now(clock, ns))
        return -EINVAL;
    const Timespec resolution{0, clock == kRealtimeCoarse || clock == kMonotonicCoarse ? 4'000'000 : 1};
    return !c.a[1] || put_user(c.a[1], resolution) ? 0 : -EFAULT;
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
    const i32 who = static_cast<i32>(c.a[0]);
    if (who < -1 || who > 1)
        return -EINVAL;
    u8 out[144] = {};
    if (who != -1) {
        const Timeval t = to_timeval(cpu_ns());
        memcpy(out, &t, sizeof(t));
        const u64 rss_kib = 32768;
        memcpy(out + 32, &rss_kib, 8);
    }
    return copy_to_user(c.a[1], out, sizeof(out)) ? 0 : -EFAULT;
}

namespace {
i64 sleep_until(u64 deadline, bool absolute, u64 rest) {
    while (now_mono() < deadline) {
        block(deadline);
        if (signal_pending(current)) {
            const u64 now = now_mono();
            if (now >= deadline)
                return 0;
            if (!absolute && rest && !put_user(rest, from_ns(deadline - now)))
                return -EFAULT;
            return -EINTR; // never restarted by SA_RESTART once a handler ran (signal(7))
        }
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
    u64 now;
    const i32 clock = static_cast<i32>(c.a[0]);
    if (clock == kThreadCpu || !clock_now(clock, now))
        return -EINVAL;
    if (!get_user(t, c.a[2]))
        return -EFAULT;
    if (!valid(t))
        return -EINVAL;
    const bool absolute = (c.a[1] & 1) != 0;
    return sleep_until(deadline_of(clock, absolute, t), absolute, c.a[3]);
}

i64 sys_timerfd_create(const Args& c) {
    u64 now;
    const i32 clock = static_cast<i32>(c.a[0]);
    if (!clock_now(clock, now) || clock == kProcessCpu || clock == kThreadCpu || (c.a[1] & ~u64{O_NONBLOCK_ | O_CLOEXEC_}))
        return -EINVAL;
    auto* t = make<TimerFile>();
    if (!t)
        return -ENOMEM;
    t->ops = &timer_ops;
    t->kind = Kind::timer;
    t->flags = static_cast<u32>(O_RDWR_ | (c.a[1] & O_NONBLOCK_));
    t->clock = clock;
    t->next = timer_files;
    if (timer_files)
        timer_files->previous = t;
    timer_files = t;
    return install_or_release(t, (c.a[1] & O_CLOEXEC_) != 0);
}

i64 sys_timerfd_settime(const Args& c) {
    File* f = file_of(static_cast<i32>(c.a[0]));
    if (!f)
        return -EBADF;
    ItimerSpec spec, old;
    if (!get_user(spec, c.a[2]))
        return -EFAULT;
    if (f->kind != Kind::timer || !valid(spec.interval) || !valid(spec.value) || (c.a[1] & ~u64{3}))
        return -EINVAL;
    auto* t = static_cast<TimerFile*>(f);
    remaining(t, old);
    if (c.a[3] && !put_user(c.a[3], old))
        return -EFAULT;
    t->expirations = 0;
    t->interval = to_ns(spec.interval);
    t->expiry = 0;
    if (to_ns(spec.value)) {
        t->expiry = deadline_of(t->clock, (c.a[1] & 1) != 0, spec.value);
        if (t->expiry == 0) // in the past: expires at once
            t->expiry = now_mono();
    }
    settle(t, now_mono());
    return 0;
}

i64 sys_timerfd_gettime(const Args& c) {
    File* f = file_of(static_cast<i32>(c.a[0]));
    if (!f)
        return -EBADF;
    if (f->kind != Kind::timer)
        return -EINVAL;
    auto* t = static_cast<TimerFile*>(f);
    settle(t, now_mono());
    ItimerSpec out;
    remaining(t, out);
    return put_user(c.a[1], out) ? 0 : -EFAULT;
}

i64 sys_setitimer(const Args& c) {
    struct { Timeval interval, value; } fresh{}, old{};
    if (c.a[0] > 2)
        return -EINVAL;
    if (c.a[1] && !get_user(fresh, c.a[1]))
        return -EFAULT;
    const u64 now = now_mono();
    if (c.a[0] == 0) {
        old.interval = to_timeval(itimer.interval);
        old.value = to_timeval(itimer.expiry > now ? itimer.expiry - now : 0);
    }
    if (c.a[2] && !put_user(c.a[2], old))
        return -EFAULT;
    if (fresh.value.usec < 0 || fresh.value.usec >= 1'000'000 || fresh.interval.usec < 0 || fresh.interval.usec >= 1'000'000 ||
        fresh.value.sec < 0 || fresh.interval.sec < 0)
        return -EINVAL;
    if (c.a[0] != 0) // timers of CPU time are not offered (profilers do without)
        return to_ns(fresh.value) ? -EINVAL : 0;
    itimer.interval = to_ns(fresh.interval);
    itimer.expiry = to_ns(fresh.value) ? now + to_ns(fresh.value) : 0;
    return 0;
}

i64 sys_getitimer(const Args& c) {
    struct { Timeval interval, value; } out{};
    if (c.a[0] > 2)
        return -EINVAL;
    const u64 now = now_mono();
    if (c.a[0] == 0) {
        out.interval = to_timeval(itimer.interval);
        out.value = to_timeval(itimer.expiry > now ? itimer.expiry - now : 0);
    }
    return put_user(c.a[1], out) ? 0 : -EFAULT;
}

i64 sys_alarm(const Args& c) {
    const u64 now = now_mono();
    const u64 left = itimer.expiry > now ? itimer.expiry - now : 0;
    const u64 seconds = c.a[0] & 0xffffffff;
    itimer.interval = 0;
    itimer.expiry = seconds ? now + seconds * 1'000'000'000 : 0;
    return static_cast<i64>((left + 999'999'999) / 1'000'000'000);
}

} // namespace gk
