// System calls for signals.
#include "tinykvm/guest/calls.hpp"
#include "tinykvm/guest/signal.hpp"
#include "tinykvm/guest/timers.hpp"

namespace gk {

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
        forget_ignored(static_cast<i32>(signal));
        signal_action_changed(static_cast<i32>(signal));
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
        retarget_process_signals();
    }
    return 0;
}

i64 sys_rt_sigpending(const Args& c) {
    const u64 set = (current->sig_pending.bits | process_pending.bits) & current->sig_mask;
    if (c.a[1] > 8)
        return -EINVAL;
    return copy_to_user(c.a[0], &set, c.a[1]) ? 0 : -EFAULT;
}

// For ppoll, pselect, epoll_pwait and sigsuspend: the mask stays in force until the call's signals are delivered.
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

i64 drop_temporary_mask(i64 result) {
    // An interrupted call keeps the mask until the signal is delivered; deliver_signals() then restores the old one.
    if (current->restore_mask && result != -EINTR && result != -ERESTARTNOHAND) {
        current->restore_mask = false;
        current->sig_mask = current->saved_mask;
    }
    return result;
}

i64 sys_rt_sigsuspend(const Args& c) {
    i64 error = 0;
    if (!c.a[0])
        return -EFAULT;
    if (!use_temporary_mask(c.a[0], c.a[1], error))
        return error;
    while (!signal_pending(current))
        block(kNever);
    return -ERESTARTNOHAND;
}

i64 sys_pause(const Args&) {
    while (!signal_pending(current))
        block(kNever);
    return -ERESTARTNOHAND;
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
        SigInfo info;
        if (take_signal(set, info)) {
            u8 out[128] = {};
            memcpy(out, &info, sizeof(info));
            if (c.a[1] && !copy_to_user(c.a[1], out, sizeof(out)))
                return -EFAULT;
            return info.signo;
        }
        if (signal_pending(current))
            return -EINTR;
        if (deadline <= now_mono())
            return -EAGAIN;
        current->sig_waited = set;
        block(deadline);
        current->sig_waited = 0;
    }
}

i64 sys_sigaltstack(const Args& c) {
    SigStack fresh;
    if (c.a[0] && !get_user(fresh, c.a[0]))
        return -EFAULT;
    SigStack& alt = current->alt_stack;
    const u64 sp = c.regs->rsp;
    const bool on = !(alt.flags & kDisable) && sp > alt.sp && sp - alt.sp <= alt.size;
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
        const i32 mode = fresh.flags & ~kAutoDisarm;
        if (mode != 0 && mode != kDisable && mode != kOnStack)
            return -EINVAL;
        if (mode == kDisable)
            alt = SigStack{};
        else if (fresh.size < 2048) // MINSIGSTKSZ
            return -ENOMEM;
        else
            alt = {fresh.sp, fresh.flags & kAutoDisarm, 0, fresh.size};
    }
    return 0;
}

namespace {

bool own_pid(i32 pid) { return pid != 0 && is_own_process(pid); }

i64 signal_thread(u64 tid, u64 signal, const SigInfo& info) {
    if (signal > 64 || static_cast<i32>(tid) <= 0)
        return -EINVAL;
    for (u32 i = 0; i < thread_limit; ++i) {
        Thread* t = threads[i];
        if (!alive(t) || t->tid != static_cast<u32>(tid))
            continue;
        return signal == 0 || send_signal(t, static_cast<i32>(signal), info) ? 0 : -EAGAIN;
    }
    return -ESRCH;
}

bool get_info(u64 at, u64 signal, SigInfo& info) {
    if (!get_user(info, at))
        return false;
    info.signo = static_cast<i32>(signal);
    return true;
}

} // namespace

i64 sys_tgkill(const Args& c) {
    if (static_cast<i32>(c.a[0]) <= 0 || static_cast<i32>(c.a[1]) <= 0)
        return -EINVAL;
    if (!own_pid(static_cast<i32>(c.a[0])))
        return -ESRCH;
    return signal_thread(c.a[1], c.a[2], own_signal(static_cast<i32>(c.a[2]), -6 /*SI_TKILL*/));
}
i64 sys_tkill(const Args& c) { return signal_thread(c.a[0], c.a[1], own_signal(static_cast<i32>(c.a[1]), -6)); }

i64 sys_kill(const Args& c) {
    const i32 pid = static_cast<i32>(c.a[0]);
    const i32 group = pid < -1 ? -pid : pid;
    if (c.a[1] > 64)
        return -EINVAL;
    if (pid != 0 && pid != -1 && !own_pid(group))
        return -ESRCH;
    const i32 signal = static_cast<i32>(c.a[1]);
    return signal == 0 || send_process_signal(signal, own_signal(signal, 0)) ? 0 : -EAGAIN;
}

i64 sys_rt_sigqueueinfo(const Args& c) {
    SigInfo info;
    if (!get_info(c.a[2], c.a[1], info))
        return -EFAULT;
    if (c.a[1] > 64)
        return -EINVAL;
    if (!own_pid(static_cast<i32>(c.a[0])))
        return -ESRCH;
    return c.a[1] == 0 || send_process_signal(static_cast<i32>(c.a[1]), info) ? 0 : -EAGAIN;
}

i64 sys_rt_tgsigqueueinfo(const Args& c) {
    SigInfo info;
    if (!get_info(c.a[3], c.a[2], info))
        return -EFAULT;
    if (!own_pid(static_cast<i32>(c.a[0])))
        return static_cast<i32>(c.a[0]) <= 0 ? -EINVAL : -ESRCH;
    return signal_thread(c.a[1], c.a[2], info);
}

} // namespace gk
