// Boot, clone, exit, and thread ids.
#include "tinykvm/guest/calls.hpp"
#include "tinykvm/guest/limits.hpp"

namespace gk {
namespace {

enum : u64 {
    kCloneVm = 0x100,
    kCloneSighand = 0x800,
    kCloneThread = 0x10000,
    kCloneSettls = 0x80000,
    kCloneParentSettid = 0x100000,
    kCloneChildCleartid = 0x200000,
    kCloneChildSettid = 0x1000000,
    kCloneVfork = 0x4000,
};

constexpr u64 kUserFlags = 0x3202; // IF, IOPL 3 (see kvm/cpu_tables.hpp)

} // namespace

// Default x87 control word and MXCSR, no component in use.
void init_xsave(u8* area) {
    const u16 control = 0x37f;
    const u32 mxcsr = 0x1f80;
    memcpy(area, &control, sizeof(control));
    memcpy(area + 24, &mxcsr, sizeof(mxcsr));
}

namespace {
// A new program's name is the last component of its path, from AT_EXECFN on the initial stack (System V ABI, 3.4.1).
void name_from_stack(Thread* t) {
    u64 at = gk_shared_page.boot_stack, count = 0, word = 0;
    if (!get_user(count, at))
        return;
    at += 8 * (count + 2);
    do { // the environment
        if (!get_user(word, at))
            return;
        at += 8;
    } while (word != 0);
    struct {
        u64 type, value;
    } entry;
    for (; get_user(entry, at) && entry.type != 0; at += sizeof(entry)) {
        if (entry.type != 31)
            continue;
        char path[256];
        const i64 length = string_from_user(path, entry.value, sizeof(path));
        i64 begin = length;
        while (begin > 0 && path[begin - 1] != '/')
            --begin;
        for (i64 i = 0; i < 15 && begin + i < length; ++i)
            t->name[i] = path[begin + i];
        return;
    }
}
} // namespace

extern "C" void gk_boot() {
    init_limits();
    init_files();
    init_cpuid();
    Thread* t = new_thread();
    if (!t)
        fatal("no room for the first thread");
    init_xsave(t->xsave);
    first_credentials(t);
    t->state = ThreadState::runnable;
    current = t;
    gk_kernel_stack = t->stack + kThreadStackBytes;
    Regs* regs = user_regs(t);
    memset(regs, 0, sizeof(*regs));
    regs->rip = gk_shared_page.boot_entry;
    regs->rsp = gk_shared_page.boot_stack;
    regs->rflags = kUserFlags;
    name_from_stack(t);
    u64 discard;
    t->kernel_rsp = address(regs) - 7 * 8;
    u64* frame = reinterpret_cast<u64*>(t->kernel_rsp);
    frame[6] = address(&gk_thread_start);
    gk_switch(&discard, t->kernel_rsp);
}

i64 sys_clone(const Args& c) {
    const u64 flags = c.a[0];
    if ((flags & kCloneThread) == 0 || (flags & kCloneVm) == 0) {
        return fork(c.regs, {.vfork = (flags & (kCloneVfork | kCloneVm)) != 0,
                             .stack = c.a[1],
                             .set_tid = (flags & kCloneChildSettid) ? c.a[3] : 0,
                             .clear_tid = (flags & kCloneChildCleartid) ? c.a[3] : 0});
    }
    if ((flags & kCloneSighand) == 0 || ((flags & kCloneSettls) && c.a[4] >= layout::kUserMax))
        return -EINVAL;
    if (live_threads >= soft_limit_of(kLimitNproc) && current->ids.user.real != 0)
        return -EAGAIN;
    Thread* t = new_thread();
    if (!t)
        return -EAGAIN;
    vector_save_current();
    memcpy(t->xsave, current->xsave, gk_shared_page.xsave_bytes);
    t->fs_base = (flags & kCloneSettls) ? c.a[4] : current->fs_base;
    t->gs_base = current->gs_base;
    t->sig_mask = current->restore_mask ? current->saved_mask : current->sig_mask;
    memcpy(t->name, current->name, sizeof(t->name));
    inherit_credentials(t, current);
    t->timer_slack = current->timer_slack;
    t->policy = current->reset_on_fork ? u8{0} : current->policy;
    t->nice = current->reset_on_fork && current->nice < 0 ? static_cast<signed char>(0) : current->nice;
    t->io_priority = current->io_priority;
    if (flags & kCloneChildCleartid)
        t->clear_child_tid = c.a[3];
    const u32 tid = t->tid;
    if (((flags & kCloneParentSettid) && !put_user(c.a[2], tid)) ||
        ((flags & kCloneChildSettid) && !put_user(c.a[3], tid))) {
        --live_threads;
        drop_credentials(t);
        free_thread(t);
        return -EFAULT;
    }
    Regs* regs = user_regs(t);
    *regs = *c.regs;
    regs->rax = 0;
    if (c.a[1])
        regs->rsp = c.a[1];
    t->kernel_rsp = address(regs) - 7 * 8;
    u64* frame = reinterpret_cast<u64*>(t->kernel_rsp);
    for (u32 i = 0; i < 6; ++i)
        frame[i] = 0;
    frame[6] = address(&gk_thread_start);
    make_runnable(t);
    return tid;
}

i64 sys_fork(const Args& c) {
    const u64 nr = c.regs->orig_rax;
    if (nr == 57 || nr == 58) // fork, vfork
        return fork(c.regs, {.vfork = nr == 58});
    host_call(abi::kRefused, nr, c.a[nr == 59 ? 0 : 1]); // execve, execveat
    return -EPERM;
}

i64 sys_exit(const Args& c) {
    static u32 status_of_first;
    if (current == threads[0])
        status_of_first = static_cast<u32>(c.a[0]) & 0xff;
    if (live_threads == 1)
        end_process(status_of_first);
    robust_exit(current);
    if (current->clear_child_tid) {
        const u32 zero = 0;
        put_user(current->clear_child_tid, zero);
        futex_wake(current->clear_child_tid | kSharedKey, 1, ~0u);
    }
    thread_exit_current();
}

i64 sys_exit_group(const Args& c) { end_process(c.a[0] & 0xff); }

i64 sys_set_tid_address(const Args& c) {
    current->clear_child_tid = c.a[0];
    return current->tid;
}

i64 sys_set_robust_list(const Args& c) {
    if (c.a[1] != 24)
        return -EINVAL;
    current->robust_list = c.a[0];
    return 0;
}

bool is_own_process(i32 pid) {
    return pid == 0 || pid == static_cast<i32>(gk_shared_page.pid) ||
           (threads[0] && pid == static_cast<i32>(threads[0]->tid));
}

Thread* thread_of(i32 tid) {
    for (u32 i = 0; i < thread_limit; ++i)
        if (alive(threads[i]) && threads[i]->tid == static_cast<u32>(tid))
            return threads[i];
    return tid == static_cast<i32>(gk_shared_page.pid) && alive(threads[0]) ? threads[0] : nullptr;
}

i64 sys_gettid(const Args&) { return current->tid; }
i64 sys_getpid(const Args&) { return gk_shared_page.pid; }
i64 sys_sched_yield(const Args&) {
    static u32 spins;
    if ((++spins & 63) == 0)
        poll_host(false);
    yield();
    return 0;
}

i64 sys_arch_prctl(const Args& c) {
    switch (c.a[0]) {
    case 0x1002: // ARCH_SET_FS
        if (c.a[1] >= layout::kUserMax)
            return -EPERM;
        current->fs_base = c.a[1];
        asm volatile("wrfsbase %0" ::"r"(c.a[1]));
        return 0;
    case 0x1001: // ARCH_SET_GS
        if (c.a[1] >= layout::kUserMax)
            return -EPERM;
        current->gs_base = c.a[1];
        asm volatile("wrgsbase %0" ::"r"(c.a[1]));
        return 0;
    case 0x1003: { // ARCH_GET_FS
        u64 base;
        asm volatile("rdfsbase %0" : "=r"(base));
        return put_user(c.a[1], base) ? 0 : -EFAULT;
    }
    case 0x1004: {
        u64 base;
        asm volatile("rdgsbase %0" : "=r"(base));
        return put_user(c.a[1], base) ? 0 : -EFAULT;
    }
    default: return -EINVAL;
    }
}

} // namespace gk
