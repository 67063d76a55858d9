// The process's resource limits (setrlimit).
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
u64 soft_limit_of(ResourceLimit); // ~0: unlimited
bool cpu_time_is_limited();
// RLIMIT_CPU: sends SIGXCPU at the soft limit and each second after it, SIGKILL at the hard limit.
void enforce_cpu_limit(u64 used_ns);
// RLIMIT_FSIZE for a write at offset `at`: 0, with `bytes` reduced to what fits; or -EFBIG after sending SIGXFSZ.
i64 within_file_limit(u64 at, u64& bytes);
// RLIMIT_FSIZE for a new length of a file: 0, or -EFBIG after sending SIGXFSZ.
i64 may_reach(u64 length);

} // namespace gk
