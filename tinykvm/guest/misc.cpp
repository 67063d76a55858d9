// Memory calls, which the host answers, and many short calls.
#include "tinykvm/guest/own_files.hpp"
#include "tinykvm/guest/sysv.hpp"

namespace gk {
namespace {

i64 map_memory(const Args& c) {
    enum : u64 { kType = 0xf, kPrivate = 2, kSharedValidate = 3, kAnonymous = 0x20, kHuge = 0x40000 };
    // Flags that MAP_SHARED_VALIDATE accepts (linux/mman.h, LEGACY_MAP_MASK).
    constexpr u64 kKnown = 0x1 | 0x2 | 0x10 | 0x20 | 0x40 | 0x100 | 0x800 | 0x1000 | 0x2000 | 0x4000 | 0x8000 |
                           0x10000 | 0x20000 | kHuge | u64{21} << 26 | u64{30} << 26;
    const u64 type = c.a[3] & kType;
    i32 handle = -1;
    if (c.a[5] & 0xfff || type == 0 || type > 3 || ((c.a[3] & kAnonymous) && type == kSharedValidate))
        return -EINVAL;
    if (!(c.a[3] & kAnonymous)) {
        File* f = file_of(static_cast<i32>(c.a[4]));
        if (!f || f->flags & O_PATH_)
            return -EBADF;
        if (c.a[3] & kHuge)
            return -EINVAL; // there are no hugetlbfs files
        if (type == kSharedValidate && (c.a[3] & ~(kKnown | kType)))
            return -EOPNOTSUPP;
        if (own::OwnFile* o = own::own_file(f))
            return own::map(o, c);
        handle = handle_of(f);
        if (handle < 0)
            return -ENODEV;
        const bool shared_write = type != kPrivate && (c.a[2] & 2);
        if ((f->flags & O_ACCMODE_) == O_WRONLY_ || (shared_write && (f->flags & O_ACCMODE_) != O_RDWR_))
            return -EACCES;
        file_mapped |= type != kPrivate && (f->flags & O_ACCMODE_) == O_RDWR_;
    } else if (c.a[3] & kHuge) {
        return -ENOMEM; // no huge pages are reserved
    }
    return host_call(9, c.a[0], c.a[1], c.a[2], c.a[3], static_cast<u64>(static_cast<i64>(handle)), c.a[5]);
}

} // namespace

i64 sys_mmap(const Args& c) {
    constexpr u64 kFixed = 0x10;
    const i64 at = map_memory(c);
    if (at > 0 && (c.a[3] & kFixed))
        segments_unmapped(static_cast<u64>(at), c.a[1]);
    return at;
}

// The guest's memory is never paged out, so there is nothing to lock. The arguments are checked as on Linux.
i64 sys_mlockall(const Args& c) {
    enum : u64 { kCurrent = 1, kFuture = 2, kOnFault = 4 };
    return c.a[0] == 0 || c.a[0] == kOnFault || (c.a[0] & ~u64{kCurrent | kFuture | kOnFault}) ? -EINVAL : 0;
}

i64 sys_mlock2(const Args& c) { return (c.a[2] & ~u64{1}) ? -EINVAL : host_call(149, c.a[0], c.a[1]); }

i64 sys_zero(const Args&) { return 0; }
i64 sys_eperm(const Args&) { return -EPERM; }
i64 sys_einval(const Args&) { return -EINVAL; }
i64 sys_enosys_quiet(const Args&) { return -ENOSYS; }
i64 sys_echild(const Args&) { return -ECHILD; }

namespace {
u32 umask_now = 022;
}
u32 creation_mask() { return umask_now; }
i64 sys_umask(const Args& c) {
    const u32 old = umask_now;
    umask_now = static_cast<u32>(c.a[0]) & 0777;
    return old;
}

i64 sys_uname(const Args& c) {
    struct {
        char sysname[65], nodename[65], release[65], version[65], machine[65], domain[65];
    } u{};
    memcpy(u.sysname, "Linux", 6);
    memcpy(u.nodename, "kvmserver", 10);
    memcpy(u.release, "6.1.0-kvmserver", 16);
    memcpy(u.version, "#1 SMP", 7);
    memcpy(u.machine, "x86_64", 7);
    memcpy(u.domain, "(none)", 7);
    return put_user(c.a[0], u) ? 0 : -EFAULT;
}

i64 sys_sysinfo(const Args& c) {
    struct {
        i64 uptime;
        u64 loads[3], total, free, shared, buffer, swap, swap_free;
        u16 procs, pad;
        u32 pad2;
        u64 high, high_free;
        u32 unit, pad3;
    } s{};
    static_assert(sizeof(s) == 112);
    s.uptime = static_cast<i64>(now_boot() / 1'000'000'000);
    s.total = gk_shared_page.memory_bytes;
    s.free = gk_shared_page.memory_bytes / 2;
    s.procs = 1;
    s.unit = 1;
    return put_user(c.a[0], s) ? 0 : -EFAULT;
}

// Advice that has no effect here (no fork, no core dump, no huge pages, no read-ahead) needs no exit.
i64 sys_madvise(const Args& c) {
    constexpr u64 kIdle = 1u << 0 | 1u << 1 | 1u << 2 | 1u << 3 | 1u << 8 | 1u << 10 | 1u << 11 | 1u << 12 | 1u << 13 |
                          1u << 14 | 1u << 15 | 1u << 16 | 1u << 17 | 1u << 20 | 1u << 21;
    if (c.a[2] < 32 && (kIdle >> c.a[2] & 1))
        return (c.a[0] & 4095) || c.a[0] + c.a[1] < c.a[0] || c.a[0] + c.a[1] > layout::kUserMax ? -EINVAL : 0;
    return host_call(28, c.a[0], c.a[1], c.a[2]);
}

i64 sys_membarrier(const Args& c) {
    // With one vCPU and no preemption in the guest kernel, every barrier has already happened.
    constexpr u64 kOffered = 1 | 2 | 4 | 8 | 16 | 32 | 64;
    if (c.a[1])
        return -EINVAL;
    if (c.a[0] == 0)
        return kOffered;
    return (c.a[0] & (c.a[0] - 1)) == 0 && (c.a[0] & kOffered) ? 0 : -EINVAL;
}

i64 sys_get_robust_list(const Args& c) {
    const u64 size = 24;
    return put_user(c.a[1], current->robust_list) && put_user(c.a[2], size) ? 0 : -EFAULT;
}

// Whether --verbose-syscalls or --verbose-thread-syscalls show the call.
static bool traced(u64 nr) {
    if (gk_shared_page.trace & abi::kTraceAll)
        return true;
    switch (nr) {
    case 24:  // sched_yield
    case 56:  // clone
    case 60:  // exit
    case 186: // gettid
    case 200: // tkill
    case 202: // futex
    case 218: // set_tid_address
    case 234: // tgkill
    case 273: // set_robust_list
    case 274: // get_robust_list
    case 334: // rseq
    case 435: // clone3
    case 449: // futex_waitv
        return (gk_shared_page.trace & abi::kTraceThreads) != 0;
    default: return false;
    }
}

// Calls that Linux does not have.
static Call own_call(u64 nr) {
    switch (nr) {
    case abi::kReady: return sys_ready;
    case abi::kCallHost: return sys_call_host;
    case abi::kReturned: return sys_returned;
    default: return nullptr;
    }
}

extern "C" Regs* gk_syscall(Regs* regs) {
    const u64 nr = regs->orig_rax;
    Args args{{regs->rdi, regs->rsi, regs->rdx, regs->r10, regs->r8, regs->r9}, regs};
    i64 result;
    const Call call = nr < 512 ? call_table[nr] : own_call(nr);
    if (call) {
        result = call(args);
    } else {
        host_call(abi::kUnknownCall, nr);
        result = -ENOSYS;
    }
    regs->rax = static_cast<u64>(result);
    if (gk_shared_page.trace != 0 && traced(nr)) [[unlikely]]
        host_call(abi::kTrace, nr, static_cast<u64>(result), args.a[0], args.a[1], args.a[2], current->tid);
    return leave(regs);
}

} // namespace gk
