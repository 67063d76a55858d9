// prctl (kernel/sys.c).
#include "tinykvm/guest/calls.hpp"

namespace gk {
namespace {

enum : u64 {
    kSetPdeathsig = 1,
    kGetPdeathsig = 2,
    kGetDumpable = 3,
    kSetDumpable = 4,
    kGetKeepcaps = 7,
    kSetKeepcaps = 8,
    kGetTiming = 13,
    kSetTiming = 14,
    kSetName = 15,
    kGetName = 16,
    kGetSeccomp = 21,
    kCapbsetRead = 23,
    kCapbsetDrop = 24,
    kGetTsc = 25,
    kGetSecurebits = 27,
    kSetSecurebits = 28,
    kSetTimerslack = 29,
    kGetTimerslack = 30,
    kSetChildSubreaper = 36,
    kGetChildSubreaper = 37,
    kSetNoNewPrivs = 38,
    kGetNoNewPrivs = 39,
    kGetTidAddress = 40,
    kSetThpDisable = 41,
    kGetThpDisable = 42,
    kCapAmbient = 47,
    kSetVma = 0x53564d41,
    kSetPtracer = 0x59616d61,
};
constexpr u64 kDefaultSlackNs = 50'000;

// Settings of the process. A machine has no child processes, no tracer and no core file, so they are only stored.
struct {
    u32 death_signal = 0, dumpable = 1, subreaper = 0, no_huge_pages = 0;
} process;

i64 set_name(u64 from) {
    char name[16];
    const i64 n = string_from_user(name, from, 16);
    if (n == -EFAULT)
        return n;
    memset(current->name, 0, 16);
    memcpy(current->name, name, n < 0 ? 15 : static_cast<u64>(n));
    return 0;
}

} // namespace

i64 sys_prctl(const Args& c) {
    const u64 a = c.a[1];
    const u64 rest = c.a[2] | c.a[3] | c.a[4];
    switch (c.a[0]) {
    case kSetName: return set_name(a);
    case kGetName: return copy_to_user(a, current->name, 16) ? 0 : -EFAULT;
    case kSetPdeathsig:
        if (a > 64)
            return -EINVAL;
        process.death_signal = static_cast<u32>(a);
        return 0;
    case kGetPdeathsig: return put_user(a, process.death_signal) ? 0 : -EFAULT;
    case kGetDumpable: return process.dumpable;
    case kSetDumpable:
        if (a > 1)
            return -EINVAL;
        process.dumpable = static_cast<u32>(a);
        return 0;
    case kGetKeepcaps: return (current->ids.secure_bits & kKeepCaps) != 0;
    case kSetKeepcaps: return keep_capabilities(a);
    case kGetTiming: return 0;
    case kSetTiming: return a ? -EINVAL : 0;
    case kGetSeccomp: return 0;
    case kCapbsetRead:
        return a > kLastCapability ? -EINVAL : (current->ids.bounding & capability(static_cast<u32>(a))) != 0;
    case kCapbsetDrop: return drop_bounding(a);
    case kGetTsc: return put_user(a, u32{1}) ? 0 : -EFAULT;
    case kGetSecurebits: return current->ids.secure_bits;
    case kSetSecurebits: return set_secure_bits(a);
    case kGetTimerslack: return static_cast<i64>(current->timer_slack ? current->timer_slack : kDefaultSlackNs);
    case kSetTimerslack: // only stored: timers are as precise as the host makes them
        current->timer_slack = static_cast<i64>(a) > 0 ? a : 0;
        return 0;
    case kSetChildSubreaper: process.subreaper = a != 0; return 0;
    case kGetChildSubreaper: return put_user(a, process.subreaper) ? 0 : -EFAULT;
    case kSetNoNewPrivs:
        if (a != 1 || rest)
            return -EINVAL;
        current->ids.no_new_privileges = true;
        return 0;
    case kGetNoNewPrivs: return a || rest ? -EINVAL : i64{current->ids.no_new_privileges};
    case kGetTidAddress: return put_user(a, current->clear_child_tid) ? 0 : -EFAULT;
    case kSetThpDisable:
        if (rest)
            return -EINVAL;
        process.no_huge_pages = a != 0;
        return 0;
    case kGetThpDisable: return a || rest ? -EINVAL : i64{process.no_huge_pages};
    case kCapAmbient: return c.a[3] | c.a[4] ? -EINVAL : change_ambient(a, c.a[2]);
    case kSetVma: return 0;     // names of anonymous memory are not shown
    case kSetPtracer: return 0; // nobody can trace it anyway
    default: return -EINVAL;
    }
}

} // namespace gk
