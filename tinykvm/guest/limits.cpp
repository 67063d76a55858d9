// Resource limits (kernel/sys.c, do_prlimit). Enforced: RLIMIT_NOFILE, RLIMIT_AS and RLIMIT_DATA (by the host),
// RLIMIT_FSIZE, RLIMIT_CPU, RLIMIT_NPROC (unless root), RLIMIT_SIGPENDING, RLIMIT_MSGQUEUE, RLIMIT_NICE, RLIMIT_RTPRIO.
// The others are only stored.
#include "tinykvm/guest/limits.hpp"
#include "tinykvm/guest/calls.hpp"

namespace gk {
namespace {

constexpr u64 kNone = ~u64{0};
struct Limit {
    u64 soft, hard;
};
[[gnu::section(".bss.large")]] Limit limits[kLimitCount];
u64 next_cpu_warning; // process CPU time at which SIGXCPU is sent; 0: not yet decided

// The host's form of a limit: 0 for "unlimited".
u64 for_host(u64 limit) { return limit == kNone ? 0 : limit; }

i64 set_limit(u32 resource, const Limit& fresh) {
    Limit& now = limits[resource];
    if (fresh.soft > fresh.hard)
        return -EINVAL;
    if (fresh.hard > now.hard) // programs never have CAP_SYS_RESOURCE
        return -EPERM;
    now = fresh;
    switch (resource) {
    case kLimitNofile: set_file_limit(fresh.soft); break;
    case kLimitAs: gk_shared_page.limit_address_space = for_host(fresh.soft); break;
    case kLimitData: gk_shared_page.limit_data = for_host(fresh.soft); break;
    case kLimitCpu: next_cpu_warning = 0; break;
    default: break;
    }
    return 0;
}

} // namespace

void init_limits() {
    for (Limit& limit : limits)
        limit = {kNone, kNone};
    limits[kLimitStack] = {layout::kStackBytes, kNone};
    limits[kLimitCore] = {0, 0};
    limits[kLimitNproc] = {kMaxThreads, kMaxThreads};
    limits[kLimitNofile] = {gk_shared_page.max_files, gk_shared_page.max_files};
    limits[kLimitSigpending] = {1024, 1024};
    limits[kLimitMsgqueue] = {819200, 819200};
    limits[kLimitNice] = {0, 0};
    limits[kLimitRtprio] = {0, 0};
}

u64 soft_limit_of(ResourceLimit resource) { return limits[resource].soft; }

bool cpu_time_is_limited() { return limits[kLimitCpu].soft != kNone || limits[kLimitCpu].hard != kNone; }

void enforce_cpu_limit(u64 used) {
    constexpr u64 kSecond = 1'000'000'000;
    const auto ns = [](u64 seconds) { return seconds > kNone / kSecond ? kNone : seconds * kSecond; };
    const Limit& limit = limits[kLimitCpu];
    if (used >= ns(limit.hard)) {
        send_process_signal(SIGKILL_, {SIGKILL_, 0, 0x80, 0, 0, 0});
        return;
    }
    if (next_cpu_warning == 0)
        next_cpu_warning = ns(limit.soft);
    if (used < next_cpu_warning)
        return;
    next_cpu_warning = (used / kSecond + 1) * kSecond;
    send_process_signal(SIGXCPU_, {SIGXCPU_, 0, 0x80, 0, 0, 0});
}

i64 within_file_limit(u64 at, u64& bytes) {
    const u64 most = limits[kLimitFsize].soft;
    if (most == kNone || bytes == 0) [[likely]]
        return 0;
    if (at >= most) {
        send_signal(current, SIGXFSZ_, {SIGXFSZ_, 0, 0, 0, gk_shared_page.pid | u64{current->ids.user.real} << 32, 0});
        return -EFBIG;
    }
    if (bytes > most - at)
        bytes = most - at;
    return 0;
}

i64 may_reach(u64 length) {
    u64 one = 1;
    return static_cast<i64>(length) > 0 ? within_file_limit(length - 1, one) : 0;
}

i64 sys_truncate(const Args& c) {
    const i64 error = may_reach(c.a[1]);
    return error < 0 ? error : sys_lone_path(c);
}
i64 sys_ftruncate(const Args& c) {
    const i64 error = may_reach(c.a[1]);
    return error < 0 ? error : sys_handle_call(c);
}

i64 sys_getrlimit(const Args& c) {
    const u32 resource = static_cast<u32>(c.a[0]);
    if (resource >= kLimitCount)
        return -EINVAL;
    return put_user(c.a[1], limits[resource]) ? 0 : -EFAULT;
}

i64 sys_setrlimit(const Args& c) {
    Limit fresh;
    if (!get_user(fresh, c.a[1]))
        return -EFAULT;
    const u32 resource = static_cast<u32>(c.a[0]);
    return resource < kLimitCount ? set_limit(resource, fresh) : -EINVAL;
}

i64 sys_prlimit64(const Args& c) {
    const u32 resource = static_cast<u32>(c.a[1]);
    Limit fresh;
    if (c.a[2] && !get_user(fresh, c.a[2]))
        return -EFAULT;
    if (c.a[0] != 0 && !thread_of(static_cast<i32>(c.a[0])))
        return -ESRCH;
    if (resource >= kLimitCount)
        return -EINVAL;
    const Limit old = limits[resource];
    if (c.a[2])
        if (const i64 error = set_limit(resource, fresh); error < 0)
            return error;
    return !c.a[3] || put_user(c.a[3], old) ? 0 : -EFAULT;
}

} // namespace gk
