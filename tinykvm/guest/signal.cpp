// Signals: actions, pending signals, delivery. Frames and faults are in signal_frame.cpp, system calls in
// signal_calls.cpp.
#include "tinykvm/guest/signal.hpp"

#include "tinykvm/guest/limits.hpp"
#include "tinykvm/guest/timers.hpp"

namespace gk {

[[gnu::section(".bss.large")]] Action actions[65];
Pending process_pending;

struct QueuedSignal {
    SigInfo info;
    QueuedSignal* next;
    TimerSignal timer; // serial 0: not from a timer
};

namespace {

constexpr i32 kFirstRealTime = 32;
u32 queued;

// Faults are delivered first, so that their frame shows the faulting instruction (kernel/signal.c, SYNCHRONOUS_MASK).
constexpr u64 kSynchronous = bit(SIGSEGV_) | bit(SIGBUS_) | bit(SIGILL_) | bit(SIGTRAP_) | bit(SIGFPE_);

bool ignored(i32 signal) {
    const u64 handler = actions[signal].handler;
    if (handler == 1)
        return true;
    return handler == 0 && (signal == SIGCHLD_ || signal == SIGCONT_ || signal == SIGURG_ || signal == SIGWINCH_ ||
                            signal == SIGSTOP_ || signal == SIGTSTP_ || signal == SIGTTIN_ || signal == SIGTTOU_);
}

// Whether the signal can be dropped. A masked signal is kept: it may get a handler before it is unmasked.
bool droppable(const Thread* t, i32 signal) {
    return ignored(signal) && !((t->sig_mask | t->sig_waited) & bit(signal));
}

bool takes(const Thread* t, u64 signals) { return (signals & (~t->sig_mask | t->sig_waited)) != 0; }

// Queues a signal; false: the queue is full. A forced signal goes to the front. A timer's signal is queued even if the
// same signal is pending.
bool add(Pending& to, i32 signal, const SigInfo& info, bool forced = false, TimerSignal timer = {}) {
    if (signal < kFirstRealTime && (to.bits & bit(signal)) && !forced && !timer.serial)
        return true;
    if (queued >= soft_limit_of(kLimitSigpending) && (signal >= kFirstRealTime || timer.serial))
        return false;
    auto* fresh = make<QueuedSignal>();
    if (fresh) { // without memory, the signal is delivered without its info
        ++queued;
        fresh->info = info;
        fresh->next = nullptr;
        fresh->timer = timer;
        QueuedSignal** at = &to.head;
        while (*at && !forced)
            at = &(*at)->next;
        fresh->next = *at;
        *at = fresh;
    }
    if (!fresh && timer.serial)
        return false;
    to.bits |= bit(signal);
    tell_signal_files(signal);
    return true;
}

SigInfo take(Pending& from, i32 signal) {
    SigInfo info;
    info.signo = signal;
    bool found = false, more = false;
    for (QueuedSignal** at = &from.head; *at;) {
        QueuedSignal* here = *at;
        if (here->info.signo != signal) {
            at = &here->next;
            continue;
        }
        if (found) {
            more = true;
            break;
        }
        found = true;
        info = here->info;
        if (here->timer.serial)
            info.f0 |= u64{timer_signal_taken(here->timer)} << 32; // si_overrun
        *at = here->next;
        destroy(here);
        --queued;
    }
    if (!more)
        from.bits &= ~bit(signal);
    return info;
}

void wake_one_for(u64 signals) {
    for (u32 i = 0; i < thread_limit; ++i)
        if (alive(threads[i]) && takes(threads[i], signals)) {
            make_runnable(threads[i]);
            return;
        }
}

// Decides whether an interrupted system call restarts or returns EINTR, once it is known whether a handler runs.
void settle_restart(Regs* regs, bool handled, u64 flags) {
    if (!interrupted(regs))
        return;
    if (!handled || (static_cast<i64>(regs->rax) == -ERESTARTSYS && (flags & kSaRestart))) {
        regs->rax = regs->orig_rax;
        regs->rip -= 2;
    } else {
        regs->rax = static_cast<u64>(-EINTR);
    }
}

// Returns if a debugger wants the program to go on without the signal.
void die(i32 signal, const Regs* regs, const SigInfo& info) {
    abi::Shared& s = gk_shared_page;
    if ((s.preempt & abi::kPreemptAttached) && debug_stop(abi::kStopSignal, signal) == 0)
        return;
    vector_save_current(); // for a core file
    s.crash_rip = program_rip(regs->rip);
    s.crash_rsp = regs->rsp;
    s.crash_rflags = regs->rflags;
    const u64 all[15] = {regs->rax, regs->rbx, regs->rcx, regs->rdx, regs->rsi, regs->rdi, regs->rbp, regs->r8,
                         regs->r9,  regs->r10, regs->r11, regs->r12, regs->r13, regs->r14, regs->r15};
    for (u32 i = 0; i < 15; ++i)
        s.crash_regs[i] = all[i];
    host_call(abi::kKilled, static_cast<u64>(signal), info.f0, static_cast<u64>(static_cast<i64>(info.code)));
    fatal("the host went on after a fatal signal");
}

} // namespace

bool interrupted(const Regs* regs) {
    const i64 result = static_cast<i64>(regs->rax);
    return regs->orig_rax != ~u64{0} && (result == -ERESTARTSYS || result == -ERESTARTNOHAND);
}

bool take_signal(u64 of, SigInfo& info) {
    const u64 ready = (current->sig_pending.bits | process_pending.bits) & of;
    if (ready == 0)
        return false;
    const u64 faults = current->sig_pending.bits & of & kSynchronous;
    const i32 signal = __builtin_ctzll(faults ? faults : ready) + 1;
    info = take(current->sig_pending.bits & bit(signal) ? current->sig_pending : process_pending, signal);
    return true;
}

void forget_ignored(i32 signal) {
    if (!ignored(signal))
        return;
    drop_pending(process_pending, bit(signal));
    for (u32 i = 0; i < thread_limit; ++i)
        if (alive(threads[i]))
            drop_pending(threads[i]->sig_pending, bit(signal));
}

void drop_pending(Pending& from, u64 which) {
    while (const u64 left = from.bits & which)
        take(from, __builtin_ctzll(left) + 1);
}

void drop_all_pending() {
    drop_pending(current->sig_pending, ~u64{0});
    drop_pending(process_pending, ~u64{0});
}

bool signal_pending(const Thread* t) { return t->ending || takes(t, t->sig_pending.bits | process_pending.bits); }

bool send_signal(Thread* to, i32 signal, const SigInfo& info) {
    if (droppable(to, signal))
        return true;
    if (!add(to->sig_pending, signal, info))
        return false;
    if (takes(to, bit(signal)))
        make_runnable(to);
    return true;
}

bool send_process_signal(i32 signal, const SigInfo& info) {
    bool masked = false;
    for (u32 i = 0; i < thread_limit; ++i)
        masked |= alive(threads[i]) && ((threads[i]->sig_mask | threads[i]->sig_waited) & bit(signal));
    if (ignored(signal) && !masked)
        return true;
    if (!add(process_pending, signal, info))
        return false;
    wake_one_for(bit(signal));
    return true;
}

Queued send_timer_signal(Thread* to, const SigInfo& info, const TimerSignal& timer) {
    bool wanted = !ignored(info.signo);
    for (u32 i = 0; i < thread_limit && !wanted; ++i)
        wanted = alive(threads[i]) && (!to || threads[i] == to) && !droppable(threads[i], info.signo);
    if (!wanted)
        return Queued::ignored;
    if (!add(to ? to->sig_pending : process_pending, info.signo, info, false, timer))
        return Queued::no;
    if (!to)
        wake_one_for(bit(info.signo));
    else if (takes(to, bit(info.signo)))
        make_runnable(to);
    return Queued::yes;
}

void retarget_process_signals() {
    const u64 not_mine = process_pending.bits & (current->state == ThreadState::dead ? ~u64{0} : current->sig_mask);
    if (not_mine)
        wake_one_for(not_mine);
}

void broken_pipe() { send_signal(current, SIGPIPE_, own_signal(SIGPIPE_, 0)); }

void force_signal(i32 signal, const SigInfo& info) {
    Action& action = actions[signal];
    if ((current->sig_mask & bit(signal)) || action.handler == 1) {
        action.handler = 0; // as on Linux, a masked or ignored fault kills the process
        current->sig_mask &= ~bit(signal);
    }
    add(current->sig_pending, signal, info, true);
}

void deliver_signals(Regs* regs) {
    SigInfo info;
    while (take_signal(~current->sig_mask, info)) {
        const i32 signal = info.signo;
        const Action action = actions[signal];
        if (ignored(signal))
            continue;
        if (action.handler == 0) {
            die(signal, regs, info);
            continue;
        }
        settle_restart(regs, true, action.flags);
        const u64 mask = current->restore_mask ? current->saved_mask : current->sig_mask;
        current->restore_mask = false;
        if (!push_frame(regs, signal, action, info, mask)) {
            die(SIGSEGV_, regs, {SIGSEGV_, 0, 1, 0, regs->rsp, 0});
            continue;
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

} // namespace gk
