// The process's resource limits, as others ask for them.
#pragma once
#include "tinykvm/guest/kernel.hpp"

namespace gk {

// asm-generic/resource.h
enum ResourceLimit : u32 {
    kLimitCpu = 0,
    kLimitFsize = 1,
    kLimitData = 2,
    kLimitStack = 3,
    kLimitCore = 4,
    kLimitNproc = 6,
    kLimitNofile = 7,
    kLimitAs = 9,
    kLimitSigpending = 11,
    kLimitMsgqueue = 12,
    kLimitNice = 13,
    kLimitRtprio = 14,
    kLimitCount = 16,
};

void init_limits();
u64 soft_limit_of(ResourceLimit); // ~0: none
bool cpu_time_is_limited();
void enforce_cpu_limit(u64 used_ns); // RLIMIT_CPU: SIGXCPU each second beyond the soft one, SIGKILL at the hard one
// RLIMIT_FSIZE of a write of `bytes` (made less when only a part fits) at `at`: 0, or -EFBIG and SIGXFSZ was sent.
i64 within_file_limit(u64 at, u64& bytes);
// A file may be made so long: 0, or -EFBIG and SIGXFSZ was sent.
i64 may_reach(u64 length);

} // namespace gk
