// POSIX timers: timer_create and so on (kernel/time/posix-timers.c). A timer whose signal is pending stops until the
// signal is delivered, and then counts the expirations it missed. So a masked signal does not wake the machine again
// and again.
#include "tinykvm/guest/calls.hpp"
#include "tinykvm/guest/timers.hpp"

namespace gk {
namespace {

enum Notify : i32 { kSignal = 0, kNone = 1, kThread = 2, kThreadId = 4 };
constexpr i32 kSiTimer = -2;
constexpr u32 kMaxTimers = 1024;

struct PosixTimer {
    Clock clock;
    i32 notify = kSignal, signal = 0;
    u32 tid = 0;    // kThreadId only
    u32 serial = 0; // distinguishes it from earlier timers with the same number
    u64 value = 0;  // sigev_value
    u64 expiry = 0; // a CPU time for CPU clocks, otherwise a deadline
    u64 interval = 0;
    u64 missed = 0;  // expirations while its signal was queued
    u32 overrun = 0; // overrun count of the last delivery
    bool armed = false;
    bool queued = false;  // its signal is pending
    bool waiting = false; // expired, and stopped until its signal is taken or no longer ignored
};
PosixTimer** timers; // room for kMaxTimers, allocated with the first
u32 timer_limit;     // highest number ever used, plus one
u32 next_serial;

PosixTimer* timer_of(u64 id) { return id < timer_limit ? timers[id] : nullptr; }

u64 now_for(const PosixTimer& t) { return t.clock.is_cpu() ? now_of(t.clock) : now_like(t.expiry); }

// Advances the expiry of a periodic timer to the first one after `now`. Returns the number of intervals.
u64 forward(PosixTimer& t, u64 now) {
    if (!t.interval || t.expiry > now)
        return 0;
    const u64 n = (now - t.expiry) / t.interval + 1;
    t.expiry += n * t.interval;
    return n;
}

void fire(PosixTimer& t, u32 id) {
    if (!t.armed || t.waiting || t.notify == kNone || t.expiry > now_for(t))
        return;
    Thread* to = nullptr;
    if (t.notify & kThreadId) {
        to = thread_of(static_cast<i32>(t.tid));
        if (!to) { // the thread has ended
            t.armed = false;
            return;
        }
    }
    t.armed = t.interval != 0;
    t.waiting = t.armed;
    if (t.queued) {
        ++t.missed;
        return;
    }
    const SigInfo info{t.signal, 0, kSiTimer, 0, id, t.value};
    switch (send_timer_signal(to, info, {id, t.serial})) {
    case Queued::yes: t.queued = true; break;
    case Queued::ignored: break; // stopped until the action changes
    case Queued::no:
        t.waiting = false;
        forward(t, now_for(t));
        break;
    }
}

ItimerSpec setting_of(const PosixTimer& t) {
    PosixTimer then = t; // a timer whose signal is pending shows its next expiry
    const u64 now = now_for(t);
    forward(then, now);
    ItimerSpec out{from_ns(t.interval), {0, 0}};
    if (then.armed)
        out.value = from_ns(then.expiry > now ? then.expiry - now : then.notify == kNone ? 0 : 1);
    return out;
}

struct SigEvent {
    u64 value;
    i32 signal, notify, tid, padding[11];
};
static_assert(sizeof(SigEvent) == 64);

bool good(const SigEvent& event) {
    if (event.notify == kNone)
        return true;
    if ((event.notify & kThreadId) && !thread_of(event.tid))
        return false;
    return (event.notify == kSignal || event.notify == kThread || event.notify == kThreadId) && event.signal > 0 &&
           event.signal <= 64;
}

} // namespace

u64 next_posix_timer() {
    u64 next = kNever;
    for (u32 i = 0; i < timer_limit; ++i) {
        const PosixTimer* t = timers[i];
        // CPU clocks advance only while a thread runs, when preemption ticks check these timers.
        if (t && t->armed && !t->waiting && t->notify != kNone && !t->clock.is_cpu())
            next = earlier(next, mono_of(t->expiry));
    }
    return next;
}

void fire_posix_timers() {
    for (u32 i = 0; i < timer_limit; ++i)
        if (timers[i])
            fire(*timers[i], i);
}

u32 timer_signal_taken(const TimerSignal& from) {
    PosixTimer* t = timer_of(from.timer);
    if (!t || t->serial != from.serial || !t->queued)
        return 0;
    const u64 passed = t->waiting ? forward(*t, now_for(*t)) : 0;
    const u64 missed = t->missed + (passed ? passed - 1 : 0);
    t->queued = t->waiting = false;
    t->missed = 0;
    t->overrun = missed > 0x7fffffff ? 0x7fffffff : static_cast<u32>(missed);
    return t->overrun;
}

void signal_action_changed(i32 signal) {
    for (u32 i = 0; i < timer_limit; ++i)
        if (PosixTimer* t = timers[i]; t && t->waiting && !t->queued && t->signal == signal) {
            t->waiting = false;
            forward(*t, now_for(*t));
        }
}

i64 sys_timer_create(const Args& c) {
    SigEvent event{};
    if (c.a[1] && !get_user(event, c.a[1]))
        return -EFAULT;
    const i32 id = static_cast<i32>(c.a[0]);
    const Clock clock = clock_of(id);
    if (clock.kind == ClockKind::none)
        return is_file_clock(id) ? -EOPNOTSUPP : -EINVAL;
    if (id == kMonotonicRaw || id == kRealtimeCoarse || id == kMonotonicCoarse)
        return -EOPNOTSUPP;
    if (id == kRealtimeAlarm || id == kBoottimeAlarm)
        return -EPERM; // programs never have CAP_WAKE_ALARM
    if (!timers && !(timers = static_cast<PosixTimer**>(allocate(kMaxTimers * sizeof(PosixTimer*)))))
        return -EAGAIN;
    u32 slot = 0;
    while (slot < kMaxTimers && timers[slot])
        ++slot;
    if (slot == kMaxTimers)
        return -EAGAIN;
    if (!c.a[1])
        event = {slot, SIGALRM_, kSignal, 0, {}};
    if (!good(event))
        return -EINVAL;
    const u32 number = slot;
    if (!put_user(c.a[2], number))
        return -EFAULT;
    auto* t = make<PosixTimer>();
    if (!t)
        return -EAGAIN;
    t->clock = clock;
    t->notify = event.notify;
    t->signal = event.signal;
    t->tid = static_cast<u32>(event.tid);
    t->value = event.value;
    t->serial = ++next_serial;
    timers[slot] = t;
    if (slot >= timer_limit)
        timer_limit = slot + 1;
    return 0;
}

i64 sys_timer_settime(const Args& c) {
    ItimerSpec spec;
    if (!c.a[2])
        return -EINVAL;
    if (!get_user(spec, c.a[2]))
        return -EFAULT;
    if (!valid(spec.interval) || !valid(spec.value))
        return -EINVAL;
    PosixTimer* t = timer_of(static_cast<u32>(c.a[0]));
    if (!t)
        return -EINVAL;
    const ItimerSpec old = setting_of(*t);
    const bool absolute = (c.a[1] & 1) != 0;
    t->interval = to_ns(spec.interval);
    t->overrun = 0;
    t->missed = 0;
    t->waiting = false;
    t->armed = to_ns(spec.value) != 0;
    if (t->armed && t->clock.is_cpu())
        t->expiry = (absolute ? 0 : now_of(t->clock)) + to_ns(spec.value);
    else if (t->armed)
        t->expiry = expiry_of(t->clock, absolute, spec.value);
    fire(*t, static_cast<u32>(c.a[0]));
    return !c.a[3] || put_user(c.a[3], old) ? 0 : -EFAULT;
}

i64 sys_timer_gettime(const Args& c) {
    const PosixTimer* t = timer_of(static_cast<u32>(c.a[0]));
    if (!t)
        return -EINVAL;
    return put_user(c.a[1], setting_of(*t)) ? 0 : -EFAULT;
}

i64 sys_timer_getoverrun(const Args& c) {
    const PosixTimer* t = timer_of(static_cast<u32>(c.a[0]));
    return t ? i64{t->overrun} : -EINVAL;
}

void drop_posix_timers() {
    for (u32 i = 0; i < timer_limit; ++i)
        if (timers[i]) {
            destroy(timers[i]);
            timers[i] = nullptr;
        }
}

i64 sys_timer_delete(const Args& c) {
    const u32 id = static_cast<u32>(c.a[0]);
    PosixTimer* t = timer_of(id);
    if (!t)
        return -EINVAL;
    timers[id] = nullptr;
    destroy(t);
    return 0;
}

} // namespace gk
