// timerfd (fs/timerfd.c).
#include "tinykvm/guest/calls.hpp"
#include "tinykvm/guest/timers.hpp"

namespace gk {
namespace {

struct TimerFile : File {
    i32 clock = kMonotonic;
    u64 expiry = 0; // a deadline; 0: disarmed
    u64 interval = 0;
    u64 expirations = 0;
    TimerFile* next = nullptr;
    TimerFile* previous = nullptr;
};
TimerFile* timer_files;

void settle(TimerFile* t) {
    if (t->expiry == 0)
        return;
    const u64 now = now_like(t->expiry);
    if (t->expiry > now)
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
        settle(t);
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
    settle(t);
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

void remaining(const TimerFile* t, ItimerSpec& out) {
    const u64 now = now_like(t->expiry);
    out.interval = from_ns(t->interval);
    out.value = from_ns(t->expiry == 0 ? 0 : t->expiry > now ? t->expiry - now : 1);
}

} // namespace

u64 next_timerfd() {
    u64 next = kNever;
    for (const TimerFile* t = timer_files; t; t = t->next)
        if (t->expiry)
            next = earlier(next, mono_of(t->expiry));
    return next;
}

void fire_timerfds() {
    for (TimerFile* t = timer_files; t; t = t->next)
        settle(t);
}

i64 sys_timerfd_create(const Args& c) {
    const i32 clock = static_cast<i32>(c.a[0]);
    if (c.a[1] & ~u64{O_NONBLOCK_ | O_CLOEXEC_})
        return -EINVAL;
    if (clock == kRealtimeAlarm || clock == kBoottimeAlarm)
        return -EPERM; // programs never have CAP_WAKE_ALARM
    if (clock != kRealtime && clock != kMonotonic && clock != kBoottime)
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

namespace {

i64 timer_file_of(u64 descriptor, TimerFile*& out) {
    File* f = file_of(static_cast<i32>(descriptor));
    if (!f)
        return -EBADF;
    if (f->kind != Kind::timer)
        return -EINVAL;
    out = static_cast<TimerFile*>(f);
    return 0;
}

} // namespace

i64 sys_timerfd_settime(const Args& c) {
    ItimerSpec spec, old;
    if (!get_user(spec, c.a[2]))
        return -EFAULT;
    if (!valid(spec.interval) || !valid(spec.value) || (c.a[1] & ~u64{3}))
        return -EINVAL;
    TimerFile* t = nullptr;
    if (const i64 error = timer_file_of(c.a[0], t); error < 0)
        return error;
    remaining(t, old);
    t->expirations = 0;
    t->interval = to_ns(spec.interval);
    t->expiry = 0;
    if (to_ns(spec.value))
        t->expiry = expiry_of(clock_of(t->clock), (c.a[1] & 1) != 0, spec.value);
    settle(t);
    return !c.a[3] || put_user(c.a[3], old) ? 0 : -EFAULT;
}

i64 sys_timerfd_gettime(const Args& c) {
    TimerFile* t = nullptr;
    if (const i64 error = timer_file_of(c.a[0], t); error < 0)
        return error;
    settle(t);
    ItimerSpec out;
    remaining(t, out);
    return put_user(c.a[1], out) ? 0 : -EFAULT;
}

} // namespace gk
