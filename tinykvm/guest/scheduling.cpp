// Scheduling parameters. One vCPU runs all threads in turn. Policies, nice values and I/O priorities are checked and
// stored as on Linux, but have no effect. Real-time policies need CAP_SYS_NICE, which programs never have.
#include "tinykvm/guest/calls.hpp"
#include "tinykvm/guest/limits.hpp"

namespace gk {
namespace {

enum Policy : i32 { kOther = 0, kFifo = 1, kRoundRobin = 2, kBatch = 3, kIdle = 5, kDeadline = 6 };
constexpr u32 kResetOnFork = 0x40000000;
constexpr i32 kMaxPriority = 99;

bool known(i32 policy) {
    return policy == kBatch || policy == kIdle || policy == kDeadline || (policy >= kOther && policy <= kRoundRobin);
}
bool real_time(i32 policy) { return policy == kFifo || policy == kRoundRobin; }

// Finds a thread; pid 0 is the calling thread. 0 or -errno.
i64 find(i32 pid, Thread*& t) {
    if (pid < 0)
        return -EINVAL;
    t = pid == 0 ? current : thread_of(pid);
    return t ? 0 : -ESRCH;
}

i64 set_policy(Thread* t, i32 policy, i32 priority, bool reset_on_fork) {
    if (!known(policy))
        return -EINVAL;
    if (priority < 0 || priority > kMaxPriority || real_time(policy) != (priority != 0))
        return -EINVAL;
    if (policy == kDeadline)
        return -EINVAL; // SCHED_DEADLINE is not supported
    if (real_time(policy) && static_cast<u64>(priority) > soft_limit_of(kLimitRtprio))
        return -EPERM;
    t->policy = static_cast<u8>(policy);
    t->reset_on_fork = reset_on_fork;
    return 0;
}

bool may_be_nice(i32 nice) { return static_cast<u64>(20 - nice) <= soft_limit_of(kLimitNice); }

} // namespace

i64 sys_sched_setscheduler(const Args& c) {
    i32 policy = static_cast<i32>(c.a[1]);
    if (policy < 0 || static_cast<i32>(c.a[0]) < 0 || !c.a[2])
        return -EINVAL;
    i32 priority;
    if (!get_user(priority, c.a[2]))
        return -EFAULT;
    Thread* t;
    if (const i64 error = find(static_cast<i32>(c.a[0]), t); error < 0)
        return error;
    const bool reset = (static_cast<u32>(policy) & kResetOnFork) != 0;
    policy &= static_cast<i32>(~kResetOnFork);
    return set_policy(t, policy, priority, reset);
}

i64 sys_sched_getscheduler(const Args& c) {
    Thread* t;
    if (const i64 error = find(static_cast<i32>(c.a[0]), t); error < 0)
        return error;
    return t->policy | (t->reset_on_fork ? i64{kResetOnFork} : 0);
}

i64 sys_sched_setparam(const Args& c) {
    i32 priority;
    if (!c.a[1] || static_cast<i32>(c.a[0]) < 0)
        return -EINVAL;
    if (!get_user(priority, c.a[1]))
        return -EFAULT;
    Thread* t;
    if (const i64 error = find(static_cast<i32>(c.a[0]), t); error < 0)
        return error;
    return set_policy(t, t->policy, priority, t->reset_on_fork);
}

i64 sys_sched_getparam(const Args& c) {
    Thread* t;
    if (!c.a[1])
        return -EINVAL;
    if (const i64 error = find(static_cast<i32>(c.a[0]), t); error < 0)
        return error;
    return put_user(c.a[1], u32{0}) ? 0 : -EFAULT;
}

i64 sys_sched_get_priority_max(const Args& c) {
    const i32 policy = static_cast<i32>(c.a[0]);
    return real_time(policy) ? kMaxPriority : known(policy) ? 0 : -EINVAL;
}
i64 sys_sched_get_priority_min(const Args& c) {
    const i32 policy = static_cast<i32>(c.a[0]);
    return real_time(policy) ? 1 : known(policy) ? 0 : -EINVAL;
}

i64 sys_sched_rr_get_interval(const Args& c) {
    Thread* t;
    if (const i64 error = find(static_cast<i32>(c.a[0]), t); error < 0)
        return error;
    return put_user(c.a[1], from_ns(kTimeSliceNs)) ? 0 : -EFAULT;
}

namespace {
// struct sched_attr, first version (linux/sched/types.h).
struct Attributes {
    u32 size, policy;
    u64 flags;
    i32 nice;
    u32 priority;
    u64 runtime, deadline, period;
};
static_assert(sizeof(Attributes) == 48);
} // namespace

i64 sys_sched_setattr(const Args& c) {
    constexpr u64 kKeepPolicy = 0x08, kKeepParams = 0x10, kKnownFlags = 0x7f;
    Attributes a{};
    if (!c.a[1] || static_cast<i32>(c.a[0]) < 0 || c.a[2])
        return -EINVAL;
    if (!get_user(a.size, c.a[1]))
        return -EFAULT;
    const u32 size = a.size ? a.size : u32{sizeof(a)};
    if (size < sizeof(a) || size > 4096) {
        put_user(c.a[1], u32{sizeof(a)});
        return -7; // E2BIG
    }
    if (!get_user(a, c.a[1]))
        return -EFAULT;
    if (static_cast<i32>(a.policy) < 0 || (a.flags & ~kKnownFlags))
        return -EINVAL;
    Thread* t;
    if (const i64 error = find(static_cast<i32>(c.a[0]), t); error < 0)
        return error;
    const i32 policy = a.flags & kKeepPolicy ? t->policy : static_cast<i32>(a.policy);
    const i32 nice = a.nice < -20 ? -20 : a.nice > 19 ? 19 : a.nice;
    if (!(a.flags & kKeepParams) && !real_time(policy) && nice < t->nice && !may_be_nice(nice))
        return -EPERM;
    const i64 result = set_policy(t, policy, static_cast<i32>(a.priority), (a.flags & 1) != 0);
    if (result == 0 && !(a.flags & kKeepParams))
        t->nice = static_cast<signed char>(nice);
    return result;
}

i64 sys_sched_getattr(const Args& c) {
    Thread* t;
    if (!c.a[1] || static_cast<i32>(c.a[0]) < 0 || c.a[2] < sizeof(Attributes) || c.a[2] > 4096 || c.a[3])
        return -EINVAL;
    if (const i64 error = find(static_cast<i32>(c.a[0]), t); error < 0)
        return error;
    const Attributes a{sizeof(a), t->policy, t->reset_on_fork ? 1ull : 0ull, t->nice, 0, 0, 0, 0};
    return put_user(c.a[1], a) && clear_user(c.a[1] + sizeof(a), c.a[2] - sizeof(a)) ? 0 : -EFAULT;
}

i64 sys_sched_setaffinity(const Args& c) {
    u64 mask = 0;
    const u64 bytes = c.a[1] < sizeof(mask) ? c.a[1] : sizeof(mask);
    if (!copy_from_user(&mask, c.a[2], bytes))
        return -EFAULT;
    Thread* t;
    if (const i64 error = find(static_cast<i32>(c.a[0]), t); error < 0)
        return error == -EINVAL ? -ESRCH : error;
    const u64 online = gk_shared_page.cpus >= 64 ? ~u64{0} : (u64{1} << gk_shared_page.cpus) - 1;
    return mask & online ? 0 : -EINVAL;
}

i64 sys_sched_getaffinity(const Args& c) {
    const u64 mask = gk_shared_page.cpus >= 64 ? ~u64{0} : (u64{1} << gk_shared_page.cpus) - 1;
    if (c.a[1] < 8 || (c.a[1] & 7))
        return -EINVAL;
    Thread* t;
    if (const i64 error = find(static_cast<i32>(c.a[0]), t); error < 0)
        return error == -EINVAL ? -ESRCH : error;
    return put_user(c.a[2], mask) ? 8 : -EFAULT;
}

i64 sys_getcpu(const Args& c) {
    const u32 zero = 0;
    if ((c.a[0] && !put_user(c.a[0], zero)) || (c.a[1] && !put_user(c.a[1], zero)))
        return -EFAULT;
    return 0;
}

// --- niceness and I/O priority -------------------------------------------------------------------

namespace {

// Calls fn(thread) for the threads that `which` and `who` select, and returns their number. `which` is PRIO_*, or
// IOPRIO_WHO_* minus one.
template <class Fn>
u32 for_named(u32 which, i32 who, Fn fn) {
    if (which == 0) {
        Thread* t = who == 0 ? current : thread_of(who);
        if (t)
            fn(t);
        return t != nullptr;
    }
    if (which == 1) { // a process group
        if (who != 0 && who != sys_getpgrp({}))
            return 0;
        fn(threads[0]);
        return 1;
    }
    u32 count = 0;
    const u32 user = who == 0 ? current->ids.user.real : static_cast<u32>(who);
    for (u32 i = 0; i < thread_limit; ++i)
        if (alive(threads[i]) && threads[i]->ids.user.real == user) {
            fn(threads[i]);
            ++count;
        }
    return count;
}

} // namespace

i64 sys_getpriority(const Args& c) {
    if (static_cast<u32>(c.a[0]) > 2)
        return -EINVAL;
    i64 most = -ESRCH;
    for_named(static_cast<u32>(c.a[0]), static_cast<i32>(c.a[1]),
              [&](const Thread* t) { most = 20 - t->nice > most ? 20 - t->nice : most; });
    return most;
}

i64 sys_setpriority(const Args& c) {
    if (static_cast<u32>(c.a[0]) > 2)
        return -EINVAL;
    const i32 asked = static_cast<i32>(c.a[2]);
    const i32 nice = asked < -20 ? -20 : asked > 19 ? 19 : asked;
    i64 result = -ESRCH;
    for_named(static_cast<u32>(c.a[0]), static_cast<i32>(c.a[1]), [&](Thread* t) {
        if (nice < t->nice && !may_be_nice(nice)) {
            result = -EACCES;
            return;
        }
        t->nice = static_cast<signed char>(nice);
        result = result == -ESRCH ? 0 : result;
    });
    return result;
}

i64 sys_ioprio_set(const Args& c) {
    // class and level (linux/ioprio.h)
    const u32 kind = static_cast<u32>(c.a[2]) >> 13, data = static_cast<u32>(c.a[2]) & 7;
    if (kind > 3 || (kind == 0 && (c.a[2] & 0x1fff)))
        return -EINVAL;
    if (kind == 1) // real-time: needs a capability that programs never have
        return -EPERM;
    if (c.a[0] < 1 || c.a[0] > 3)
        return -EINVAL;
    const u16 value = static_cast<u16>(kind << 13 | data);
    return for_named(static_cast<u32>(c.a[0] - 1), static_cast<i32>(c.a[1]), [&](Thread* t) { t->io_priority = value; })
               ? 0
               : -ESRCH;
}

i64 sys_ioprio_get(const Args& c) {
    if (c.a[0] < 1 || c.a[0] > 3)
        return -EINVAL;
    i64 value = -ESRCH;
    for_named(static_cast<u32>(c.a[0] - 1), static_cast<i32>(c.a[1]), [&](const Thread* t) { value = t->io_priority; });
    return value;
}

// --- execution domain ----------------------------------------------------------------------------

// Flags that take effect at the next execve are stored. Flags that would take effect now are refused.
i64 sys_personality(const Args& c) {
    constexpr u32 kAddrNoRandomize = 0x40000, kAddrCompatLayout = 0x200000, kUname26 = 0x20000;
    static u32 now;
    const u32 fresh = static_cast<u32>(c.a[0]);
    if (fresh == 0xffffffff)
        return now;
    if (fresh & ~(kAddrNoRandomize | kAddrCompatLayout) || (fresh & kUname26))
        return -EINVAL;
    const u32 old = now;
    now = fresh;
    return old;
}

} // namespace gk
