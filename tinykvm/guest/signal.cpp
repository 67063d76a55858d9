// Signals: actions, masks, delivery on the program's stack in Linux's frame layout, sigreturn.
#include "tinykvm/guest/calls.hpp"

namespace gk {
namespace {

enum : u64 { kSaSiginfo = 4, kSaOnstack = 0x08000000, kSaRestart = 0x10000000, kSaNodefer = 0x40000000, kSaResethand = 0x80000000,
             kSaRestorer = 0x04000000 };
constexpr u64 kUnmaskable = (u64{1} << (SIGKILL_ - 1)) | (u64{1} << (SIGSTOP_ - 1));
constexpr i32 kOnStack = 1, kDisable = 2;

struct Action { u64 handler, flags, restorer, mask; };
Action actions[65];
u64 process_pending;
SigInfo process_info[65];

u64 bit(i32 signal) { return u64{1} << (signal - 1); }

bool ignored(i32 signal) {
    const u64 handler = actions[signal].handler;
    if (handler == 1)
        return true;
    return handler == 0 && (signal == SIGCHLD_ || signal == SIGCONT_ || signal == SIGURG_ || signal == SIGWINCH_ ||
                            signal == SIGSTOP_ || signal == SIGTSTP_ || signal == SIGTTIN_ || signal == SIGTTOU_);
}

void wake(Thread* t, i32 signal) {
    if (!(t->sig_mask & bit(signal)))
        make_runnable(t);
}

// uapi/asm/sigcontext.h and ucontext.h, x86-64.
struct SigContext {
    u64 r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags;
    u16 cs, gs, fs, ss;
    u64 err, trapno, oldmask, cr2, fpstate, reserved[8];
};
struct UContext {
    u64 flags, link;
    SigStack stack;
    SigContext context;
    u64 mask;
};
struct Frame {
    u64 restorer;
    UContext uc;
    u8 info[128];
};
static_assert(sizeof(SigContext) == 256);

constexpr u32 kFpMagic1 = 0x46505853, kFpMagic2 = 0x46505845;
struct FpSoftware { u32 magic1, extended_size; u64 features; u32 xstate_size, padding[7]; };
constexpr u64 kFpSoftwareAt = 464;

[[noreturn]] void die(i32 signal, const Regs* regs, const SigInfo& info) {
    abi::Shared& s = gk_shared_page;
    s.crash_rip = regs->rip;
    s.crash_rsp = regs->rsp;
    s.crash_rflags = regs->rflags;
    const u64 all[15] = {regs->rax, regs->rbx, regs->rcx, regs->rdx, regs->rsi, regs->rdi, regs->rbp, regs->r8,
                         regs->r9, regs->r10, regs->r11, regs->r12, regs->r13, regs->r14, regs->r15};
    for (u32 i = 0; i < 15; ++i)
        s.crash_regs[i] = all[i];
    host_call(abi::kKilled, static_cast<u64>(signal), info.f0, static_cast<u64>(static_cast<i64>(info.code)));
    fatal("the host went on after a fatal signal");
}

bool push_frame(Regs* regs, i32 signal, const Action& action, const SigInfo& info, u64 mask) {
    u64 sp = regs->rsp;
    const SigStack& alt = current->alt_stack;
    const bool on_alt = !(alt.flags & kDisable) && sp - alt.sp <= alt.size;
    if ((action.flags & kSaOnstack) && !(alt.flags & kDisable) && !on_alt)
        sp = alt.sp + alt.size;
    else
        sp -= 128; // red zone

    const u32 area = gk_shared_page.xsave_bytes;
    vector_save_current();
    sp = (sp - area - 4) & ~u64{63};
    const u64 fpstate = sp;
    sp = ((sp - sizeof(Frame)) & ~u64{15}) - 8;
    u8* image = current->xsave;
    FpSoftware software{};
    software.magic1 = kFpMagic1;
    software.extended_size = area + 4;
    software.features = gk_shared_page.xsave_mask;
    software.xstate_size = area;
    memcpy(image + kFpSoftwareAt, &software, sizeof(software));
    if (!copy_to_user(fpstate, image, area) || !put_user(fpstate + area, kFpMagic2))
        return false;

    Frame frame;
    memset(&frame, 0, sizeof(frame));
    frame.restorer = action.restorer;
    frame.uc.flags = 7; // UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS
    frame.uc.stack = alt;
    if (on_alt)
        frame.uc.stack.flags |= kOnStack;
    SigContext& c = frame.uc.context;
    c.r8 = regs->r8; c.r9 = regs->r9; c.r10 = regs->r10; c.r11 = regs->r11;
    c.r12 = regs->r12; c.r13 = regs->r13; c.r14 = regs->r14; c.r15 = regs->r15;
    c.rdi = regs->rdi; c.rsi = regs->rsi; c.rbp = regs->rbp; c.rbx = regs->rbx;
    c.rdx = regs->rdx; c.rax = regs->rax; c.rcx = regs->rcx; c.rsp = regs->rsp;
    c.rip = regs->rip;
    c.eflags = regs->rflags;
    c.cs = 0x33;
    c.ss = 0x2b;
    c.err = gk_shared_page.fault_error;
    c.trapno = gk_shared_page.fault_vector;
    c.cr2 = gk_shared_page.fault_address;
    c.oldmask = mask;
    c.fpstate = fpstate;
    frame.uc.mask = mask;
    memcpy(frame.info, &info, sizeof(info));
    if (!copy_to_user(sp, &frame, sizeof(frame)))
        return false;
    regs->rsp = sp;
    regs->rip = action.handler;
    regs->rdi = static_cast<u64>(signal);
    regs->rsi = sp + offsetof(Frame, info);
    regs->rdx = sp + offsetof(Frame, uc);
    regs->rax = 0;
    regs->rflags &= ~u64{0x500}; // DF, TF
    regs->orig_rax = ~u64{0};
    return true;
}

// What the interrupted system call does next, decided once a handler is to run (or not).
void settle_restart(Regs* regs, bool handled, u64 flags) {
    if (regs->orig_rax == ~u64{0} || regs->rax != static_cast<u64>(-ERESTARTSYS))
        return;
    if (!handled || (flags & kSaRestart)) {
        regs->rax = regs->orig_rax;
        regs->rip -= 2;
    } else {
        regs->rax = static_cast<u64>(-EINTR);
    }
}

i32 next_signal(SigInfo& info) {
    const u64 ready = (current->sig_pending | process_pending) & ~current->sig_mask;
    if (ready == 0)
        return 0;
    const i32 signal = __builtin_ctzll(ready) + 1;
    if (current->sig_pending & bit(signal)) {
        current->sig_pending &= ~bit(signal);
        info = current->sig_info[signal];
    } else {
        process_pending &= ~bit(signal);
        info = process_info[signal];
    }
    return signal;
}

} // namespace

bool signal_pending(const Thread* t) { return ((t->sig_pending | process_pending) & ~t->sig_mask) != 0; }

void send_signal(Thread* to, i32 signal, const SigInfo& info) {
    if (ignored(signal) && !(to->sig_mask & bit(signal)))
        return;
    if (!(to->sig_pending & bit(signal)))
        to->sig_info[signal] = info;
    to->sig_pending |= bit(signal);
    wake(to, signal);
}

void send_process_signal(i32 signal, const SigInfo& info) {
    if (ignored(signal))
        return;
    if (!(process_pending & bit(signal)))
        process_info[signal] = info;
    process_pending |= bit(signal);
    for (u32 i = 0; i < thread_limit; ++i) {
        Thread* t = threads[i];
        if (t && t->state != ThreadState::free && !(t->sig_mask & bit(signal))) {
            wake(t, signal);
            return;
        }
    }
}

void force_signal(i32 signal, const SigInfo& info) {
    Action& action = actions[signal];
    if ((current->sig_mask & bit(signal)) || action.handler == 1) {
        action.handler = 0; // as Linux: a fault that is masked or ignored kills
        current->sig_mask &= ~bit(signal);
    }
    current->sig_info[signal] = info;
    current->sig_pending |= bit(signal);
}

void deliver_signals(Regs* regs) {
    SigInfo info;
    while (const i32 signal = next_signal(info)) {
        Action action = actions[signal];
        if (action.handler == 1 || (action.handler == 0 && ignored(signal)))
            continue;
        if (action.handler == 0) {
            die(signal, regs, info);
        }
        settle_restart(regs, true, action.flags);
        const u64 mask = current->restore_mask ? current->saved_mask : current->sig_mask;
        current->restore_mask = false;
        if (!push_frame(regs, signal, action, info, mask)) {
            SigInfo fault{SIGSEGV_, 0, 1, 0, regs->rsp, 0};
            die(SIGSEGV_, regs, fault);
        }
        current->sig_mask |= action.mask;
        if (!(action.flags & kSaNodefer))
            current->sig_mask |= bit(signal);
        current->sig_mask &= ~kUnmaskable;
        if (action.flags & kSaResethand)
            actions[signal].handler = 0;
    }
    settle_restart(regs, false, 0);
    if (current->restore_mask) {
        current->restore_mask = false;
        current->sig_mask = current->saved_mask;
    }
}

extern "C" Regs* gk_fault(Regs* regs) {
    const abi::Shared& s = gk_shared_page;
    SigInfo info;
    info.f0 = s.fault_address;
    switch (s.fault_vector) {
    case 0: info.signo = SIGFPE_; info.code = 1; info.f0 = regs->rip; break;
    case 1:
    case 3: info.signo = SIGTRAP_; info.code = 1; info.f0 = regs->rip; break;
    case 6: info.signo = SIGILL_; info.code = 2; info.f0 = regs->rip; break;
    case 14:
        info.signo = SIGSEGV_;
        info.code = 1; // SEGV_MAPERR
        if (s.fault_error & 0x80000000u)
            info.code = 2; // SEGV_ACCERR
        if (s.fault_error & 0x40000000u) {
            info.signo = SIGBUS_;
            info.code = 2; // BUS_ADRERR
        }
        break;
    case 16:
    case 19: info.signo = SIGFPE_; info.code = 7; info.f0 = regs->rip; break;
    case 17: info.signo = SIGBUS_; info.code = 1; break;
    default: info.signo = SIGSEGV_; info.code = 0x80; info.f0 = 0; break;
    }
    force_signal(info.signo, info);
    return leave(regs);
}

i64 sys_rt_sigreturn(const Args& c) {
    Regs* regs = c.regs;
    Frame frame;
    const SigInfo bad{SIGSEGV_, 0, 0x80, 0, regs->rsp, 0};
    regs->orig_rax = ~u64{0};
    if (!get_user(frame, regs->rsp - 8)) {
        force_signal(SIGSEGV_, bad);
        return 0;
    }
    const SigContext& s = frame.uc.context;
    if (s.fpstate) {
        vector_save_current();
        u8* image = current->xsave;
        const u32 area = gk_shared_page.xsave_bytes;
        if (!copy_from_user(image, s.fpstate, area)) {
            force_signal(SIGSEGV_, bad);
            return 0;
        }
        // XRSTOR faults on reserved bits: keep what is ours (Intel SDM vol. 1, 13.8).
        FpSoftware software;
        memcpy(&software, image + kFpSoftwareAt, sizeof(software));
        u64 features;
        memcpy(&features, image + 512, sizeof(features));
        features = software.magic1 == kFpMagic1 ? features & gk_shared_page.xsave_mask : 3;
        memcpy(image + 512, &features, sizeof(features));
        memset(image + 520, 0, 56);
        u32 mxcsr;
        memcpy(&mxcsr, image + 24, sizeof(mxcsr));
        mxcsr &= 0xffff;
        memcpy(image + 24, &mxcsr, sizeof(mxcsr));
        vector_restore_current();
    }
    regs->r8 = s.r8; regs->r9 = s.r9; regs->r10 = s.r10; regs->r11 = s.r11;
    regs->r12 = s.r12; regs->r13 = s.r13; regs->r14 = s.r14; regs->r15 = s.r15;
    regs->rdi = s.rdi; regs->rsi = s.rsi; regs->rbp = s.rbp; regs->rbx = s.rbx;
    regs->rdx = s.rdx; regs->rcx = s.rcx; regs->rsp = s.rsp; regs->rip = s.rip;
    regs->rflags = (s.eflags & 0x40dd5) | 0x3202;
    current->sig_mask = frame.uc.mask & ~kUnmaskable;
    if (!(frame.uc.stack.flags & kDisable))
        current->alt_stack = {frame.uc.stack.sp, 0, 0, frame.uc.stack.size};
    return static_cast<i64>(s.rax);
}

i64 sys_rt_sigaction(const Args& c) {
    const u64 signal = c.a[0];
    if (signal < 1 || signal > 64 || c.a[3] != 8)
        return -EINVAL;
    Action fresh;
    if (c.a[1]) {
        if (signal == SIGKILL_ || signal == SIGSTOP_)
            return -EINVAL;
        if (!get_user(fresh, c.a[1]))
            return -EFAULT;
    }
    if (c.a[2] && !put_user(c.a[2], actions[signal]))
        return -EFAULT;
    if (c.a[1]) {
        fresh.mask &= ~kUnmaskable;
        actions[signal] = fresh;
        if (ignored(static_cast<i32>(signal))) {
            process_pending &= ~bit(static_cast<i32>(signal));
            for (u32 i = 0; i < thread_limit; ++i)
                if (threads[i])
                    threads[i]->sig_pending &= ~bit(static_cast<i32>(signal));
        }
    }
    return 0;
}

i64 sys_rt_sigprocmask(const Args& c) {
    if (c.a[3] != 8)
        return -EINVAL;
    u64 set = 0;
    if (c.a[1] && !get_user(set, c.a[1]))
        return -EFAULT;
    const u64 old = current->sig_mask;
    if (c.a[2] && !put_user(c.a[2], old))
        return -EFAULT;
    if (c.a[1]) {
        switch (c.a[0]) {
        case 0: current->sig_mask |= set; break;
        case 1: current->sig_mask &= ~set; break;
        case 2: current->sig_mask = set; break;
        default: return -EINVAL;
        }
        current->sig_mask &= ~kUnmaskable;
    }
    return 0;
}

i64 sys_rt_sigpending(const Args& c) {
    const u64 set = (current->sig_pending | process_pending) & current->sig_mask;
    return put_user(c.a[0], set) ? 0 : -EFAULT;
}

// For ppoll, pselect, epoll_pwait, sigsuspend: the mask holds until the call's signals are delivered.
bool use_temporary_mask(u64 at, u64 bytes, i64& error) {
    if (at == 0)
        return true;
    u64 mask;
    if (bytes != 8) {
        error = -EINVAL;
        return false;
    }
    if (!get_user(mask, at)) {
        error = -EFAULT;
        return false;
    }
    current->saved_mask = current->sig_mask;
    current->restore_mask = true;
    current->sig_mask = mask & ~kUnmaskable;
    return true;
}

void drop_temporary_mask() {
    // With a signal pending the mask must hold until it was delivered; deliver_signals() then restores it.
    if (current->restore_mask && !signal_pending(current)) {
        current->restore_mask = false;
        current->sig_mask = current->saved_mask;
    }
}

i64 sys_rt_sigsuspend(const Args& c) {
    i64 error = 0;
    if (!c.a[0])
        return -EFAULT;
    if (!use_temporary_mask(c.a[0], c.a[1], error))
        return error;
    while (!signal_pending(current))
        block(kNever);
    return -EINTR;
}

i64 sys_pause(const Args&) {
    while (!signal_pending(current))
        block(kNever);
    return -EINTR;
}

i64 sys_rt_sigtimedwait(const Args& c) {
    u64 set;
    if (c.a[3] != 8)
        return -EINVAL;
    if (!get_user(set, c.a[0]))
        return -EFAULT;
    set &= ~kUnmaskable;
    u64 deadline = kNever;
    if (c.a[2]) {
        Timespec t;
        if (!get_user(t, c.a[2]))
            return -EFAULT;
        if (!valid(t))
            return -EINVAL;
        deadline = deadline_of(1, false, t);
    }
    for (;;) {
        const u64 ready = (current->sig_pending | process_pending) & set;
        if (ready) {
            const i32 signal = __builtin_ctzll(ready) + 1;
            SigInfo info;
            if (current->sig_pending & bit(signal)) {
                current->sig_pending &= ~bit(signal);
                info = current->sig_info[signal];
            } else {
                process_pending &= ~bit(signal);
                info = process_info[signal];
            }
            u8 out[128] = {};
            memcpy(out, &info, sizeof(info));
            if (c.a[1] && !copy_to_user(c.a[1], out, sizeof(out)))
                return -EFAULT;
            return signal;
        }
        // Wait with those signals open, so that they wake; they stay pending, not delivered.
        const u64 mask = current->sig_mask;
        current->sig_mask = mask & ~set;
        if (!signal_pending(current))
            block(deadline);
        const bool other = ((current->sig_pending | process_pending) & ~mask) != 0;
        const bool late = current->timed_out;
        current->sig_mask = mask;
        if ((current->sig_pending | process_pending) & set)
            continue;
        if (other)
            return -EINTR;
        if (late || deadline <= now_mono())
            return -EAGAIN;
    }
}

i64 sys_sigaltstack(const Args& c) {
    SigStack fresh;
    if (c.a[0] && !get_user(fresh, c.a[0]))
        return -EFAULT;
    SigStack& alt = current->alt_stack;
    const bool on = !(alt.flags & kDisable) && c.regs->rsp - alt.sp <= alt.size;
    if (c.a[1]) {
        SigStack old = alt;
        if (on)
            old.flags |= kOnStack;
        if (!put_user(c.a[1], old))
            return -EFAULT;
    }
    if (c.a[0]) {
        if (on)
            return -EPERM;
        const i32 mode = fresh.flags & ~(1 << 31);
        if (mode != 0 && mode != kDisable && mode != kOnStack)
            return -EINVAL;
        if (mode == kDisable)
            alt = SigStack{};
        else if (fresh.size < 2048)
            return -ENOMEM;
        else
            alt = {fresh.sp, 0, 0, fresh.size};
    }
    return 0;
}

namespace {
i64 signal_thread(u64 tid, u64 signal, i32 code) {
    if (signal > 64)
        return -EINVAL;
    for (u32 i = 0; i < thread_limit; ++i) {
        Thread* t = threads[i];
        if (t && t->state != ThreadState::free && t->tid == tid) {
            if (signal)
                send_signal(t, static_cast<i32>(signal), {static_cast<i32>(signal), 0, code, 0, gk_shared_page.pid, 0});
            return 0;
        }
    }
    return -ESRCH;
}
} // namespace

i64 sys_tgkill(const Args& c) { return signal_thread(c.a[1], c.a[2], -6 /*SI_TKILL*/); }
i64 sys_tkill(const Args& c) { return signal_thread(c.a[0], c.a[1], -6); }

i64 sys_kill(const Args& c) {
    const i32 pid = static_cast<i32>(c.a[0]);
    if (c.a[1] > 64)
        return -EINVAL;
    // The process itself, its group, or the first thread's number from before a restore.
    if (pid != static_cast<i32>(gk_shared_page.pid) && pid != 0 && pid != -1 && (!threads[0] || pid != static_cast<i32>(threads[0]->tid)) &&
        pid != -static_cast<i32>(gk_shared_page.pid))
        return -ESRCH;
    if (c.a[1])
        send_process_signal(static_cast<i32>(c.a[1]), {static_cast<i32>(c.a[1]), 0, 0, 0, gk_shared_page.pid, 0});
    return 0;
}

} // namespace gk
