// setitimer and alarm: one timer for real time, two for CPU time (kernel/time/itimer.c). All CPU time counts as user
// time, so ITIMER_VIRTUAL and ITIMER_PROF run equally fast. CPU time timers are checked whenever the host preempts,
// every 10 ms.
#include "tinykvm/guest/calls.hpp"
#include "tinykvm/guest/limits.hpp"
#include "tinykvm/guest/timers.hpp"

namespace gk {
namespace {

struct IntervalTimer {
    u64 expiry, interval;
    i32 signal;
}; // expiry is on the timer's own clock; 0: disarmed
IntervalTimer timers[3] = {{0, 0, SIGALRM_}, {0, 0, SIGVTALRM_}, {0, 0, SIGPROF_}};
constexpr u32 kReal = 0;

u64 now_of_timer(u32 which) { return which == kReal ? now_mono() : cpu_ns(); }

void settle(IntervalTimer& t, u64 now) {
    if (t.expiry == 0 || t.expiry > now)
        return;
    t.expiry = t.interval ? t.expiry + ((now - t.expiry) / t.interval + 1) * t.interval : 0;
    send_process_signal(t.signal, {t.signal, 0, 0x80 /*SI_KERNEL*/, 0, 0, 0});
}

struct Itimerval {
    Timeval interval, value;
};

Itimerval setting_of(u32 which) {
    const IntervalTimer& t = timers[which];
    const u64 now = now_of_timer(which);
    constexpr u64 kMin = 1000; // for a timer that is due: 0 would mean disarmed
    return {to_timeval(t.interval), to_timeval(t.expiry == 0 ? 0 : t.expiry > now + kMin ? t.expiry - now : kMin)};
}

} // namespace

u64 next_interval_timer() { return timers[kReal].expiry ? timers[kReal].expiry : kNever; }

void fire_interval_timers(u64 now) {
    settle(timers[kReal], now);
    if (!timers[1].expiry && !timers[2].expiry && !cpu_time_is_limited()) [[likely]]
        return;
    const u64 used = cpu_ns();
    settle(timers[1], used);
    settle(timers[2], used);
    enforce_cpu_limit(used);
}

void stop_interval_timers() {
    for (IntervalTimer& timer : timers)
        timer.expiry = timer.interval = 0;
}

i64 sys_setitimer(const Args& c) {
    Itimerval fresh{};
    const u32 which = static_cast<u32>(c.a[0]);
    if (c.a[1] && !get_user(fresh, c.a[1]))
        return -EFAULT;
    if (!valid(fresh.value) || !valid(fresh.interval) || which > 2)
        return -EINVAL;
    const Itimerval old = setting_of(which);
    timers[which].interval = to_ns(fresh.interval);
    timers[which].expiry = to_ns(fresh.value) ? now_of_timer(which) + to_ns(fresh.value) : 0;
    return !c.a[2] || put_user(c.a[2], old) ? 0 : -EFAULT;
}

i64 sys_getitimer(const Args& c) {
    const u32 which = static_cast<u32>(c.a[0]);
    if (which > 2)
        return -EINVAL;
    return put_user(c.a[1], setting_of(which)) ? 0 : -EFAULT;
}

i64 sys_alarm(const Args& c) {
    const Timeval left = setting_of(kReal).value;
    const u64 seconds = static_cast<u32>(c.a[0]);
    timers[kReal].interval = 0;
    timers[kReal].expiry = seconds ? now_mono() + seconds * 1'000'000'000 : 0;
    // Rounded, but never to 0 (kernel/time/itimer.c, alarm_setitimer).
    return left.sec + ((left.sec == 0 && left.usec != 0) || left.usec >= 500'000 ? 1 : 0);
}

} // namespace gk
