// Threads, the run queue, and waiting. There is no idle thread: when all threads are blocked, the last one to block
// waits for the host on its own kernel stack.
#include "tinykvm/guest/calls.hpp"

namespace gk {

Thread* current;
[[gnu::section(".bss.large")]] Thread* threads[kMaxThreads];
u32 thread_limit;
u32 live_threads;

namespace {

Thread* run_head;
Thread* run_tail;
Thread* vector_owner; // the thread whose vector state, FS and GS are in the registers, or null
Thread* zombie;       // has exited; its stack is in use until the next switch
u32 next_tid;
u64 slice_start;       // start of the current thread's time slice, guest monotonic time
u64 host_asked;        // when the host last reported events
u32 polls_since_asked; // calls of poll_host_rarely() since then
constexpr u64 kRarelyNs = 1'000'000;
constexpr u32 kRarelyTries = 8;         // within a time slice, fewer polls than this cause no exit
u64 unsent_since;                       // time of the first bytes that the host does not know of yet; 0: none
constexpr u64 kHoldNs = 1'000'000;      // maximum delay of unsent bytes while the program makes system calls
constexpr u64 kLookAgainNs = 5'000'000; // poll interval for handles that did not fit in Shared::wait

void save_vector(Thread* t) {
    if (const u64 mask = gk_shared_page.xsave_mask)
        asm volatile("xsave64 (%0)" ::"r"(t->xsave), "a"(static_cast<u32>(mask)), "d"(static_cast<u32>(mask >> 32))
                     : "memory");
    else
        asm volatile("fxsave64 (%0)" ::"r"(t->xsave) : "memory");
    asm volatile("rdfsbase %0" : "=r"(t->fs_base));
    asm volatile("rdgsbase %0" : "=r"(t->gs_base));
}

void load_vector(Thread* t) {
    if (const u64 mask = gk_shared_page.xsave_mask)
        asm volatile("xrstor64 (%0)" ::"r"(t->xsave), "a"(static_cast<u32>(mask)), "d"(static_cast<u32>(mask >> 32))
                     : "memory");
    else
        asm volatile("fxrstor64 (%0)" ::"r"(t->xsave) : "memory");
    asm volatile("wrfsbase %0" ::"r"(t->fs_base));
    asm volatile("wrgsbase %0" ::"r"(t->gs_base));
}

void own_vector() {
    if (vector_owner == current)
        return;
    if (vector_owner)
        save_vector(vector_owner);
    load_vector(current);
    vector_owner = current;
}

void reap() {
    if (zombie && zombie != current) {
        Thread* dead = zombie;
        zombie = nullptr;
        free_thread(dead);
    }
}

void switch_to(Thread* next) {
    gk_kernel_stack = next->stack + kThreadStackBytes;
    slice_start = now_mono();
    charge_cpu(slice_start);
    if (next == current)
        return;
    Thread* previous = current;
    current = next;
    gk_switch(&previous->kernel_rsp, next->kernel_rsp);
    reap();
}

Thread* pop_runnable() {
    Thread* t = run_head;
    if (t) {
        run_head = t->run_next;
        if (!run_head)
            run_tail = nullptr;
        t->run_next = nullptr;
    }
    return t;
}

// Fills Shared::wait with all handles and deadlines that could wake a thread.
void describe_wait(bool runnable) {
    abi::Wait& wait = gk_shared_page.wait;
    u64 deadline = next_timer();
    wait.handle_count = 0;
    bool io = false, overflow = false;
    for (u32 i = 0; i < thread_limit; ++i) {
        Thread* t = threads[i];
        if (!t || t->state != ThreadState::blocked)
            continue;
        if (const u64 due = mono_of(t->deadline); due < deadline)
            deadline = due;
        io |= t->waits_for_io;
        overflow |= t->interest_overflow;
        for (u32 k = 0; k < t->interest_count; ++k) {
            const HandleInterest want = t->interest[k];
            u32 at = 0;
            while (at < wait.handle_count && wait.handles[at].handle != want.handle)
                ++at;
            if (at == wait.handle_count) {
                if (at == abi::kMaxWaitHandles) {
                    overflow = true;
                    continue;
                }
                wait.handles[at] = {want.handle, 0, 0};
                ++wait.handle_count;
            }
            wait.handles[at].events =
                static_cast<std::int16_t>(wait.handles[at].events | static_cast<std::int16_t>(want.events));
        }
    }
    if (overflow && deadline > now_mono() + kLookAgainNs)
        deadline = now_mono() + kLookAgainNs;
    wait.deadline_ns = deadline;
    wait.listeners = io ? ~u32{0} : 0;
    wait.runnable = runnable ? 1 : 0;
    wait.threads = live_threads;
}

void take_results() {
    abi::Wait& wait = gk_shared_page.wait;
    host_asked = now_mono();
    polls_since_asked = 0;
    note_answers();
    unsent_since = 0;
    bool ready = false;
    for (u32 i = 0; i < thread_limit; ++i)
        ready |= threads[i] && threads[i]->interest_overflow && threads[i]->state == ThreadState::blocked;
    for (u32 i = 0; i < wait.handle_count && i < abi::kMaxWaitHandles; ++i)
        ready |= wait.handles[i].revents != 0;
    if (ready)
        notify_io();
    conns_updated();
    check_timers();
    look_for_call();
}

void wait_for_host() {
    if (vector_owner) {
        save_vector(vector_owner);
        vector_owner = nullptr;
    }
    describe_wait(run_head != nullptr);
    charge_cpu(now_mono());
    gk_wait_out();
    skip_cpu(now_mono());
    take_results();
}

// Switches away from the current thread, which is blocked, dead, or at the end of the run queue.
void reschedule() {
    for (;;) {
        if (Thread* next = pop_runnable()) {
            switch_to(next);
            return;
        }
        wait_for_host();
    }
}

} // namespace

Thread* new_thread() {
    u32 slot = 0;
    while (slot < kMaxThreads && threads[slot] && threads[slot]->state != ThreadState::free)
        ++slot;
    if (slot == kMaxThreads)
        return nullptr;
    Thread* t = threads[slot];
    if (!t) {
        t = make<Thread>();
        if (!t)
            return nullptr;
        t->stack = address(allocate(kThreadStackBytes));
        t->xsave = static_cast<u8*>(allocate(gk_shared_page.xsave_bytes));
        if (!t->stack || !t->xsave) {
            release(reinterpret_cast<void*>(t->stack), kThreadStackBytes);
            release(t->xsave, gk_shared_page.xsave_bytes);
            destroy(t);
            return nullptr;
        }
        threads[slot] = t;
        if (slot >= thread_limit)
            thread_limit = slot + 1;
    } else {
        const u64 stack = t->stack;
        u8* xsave = t->xsave;
        HandleInterest* interest = t->interest;
        new (t) Thread;
        t->stack = stack;
        t->interest = interest;
        t->xsave = xsave;
        memset(xsave, 0, gk_shared_page.xsave_bytes);
    }
    if (next_tid == 0)
        next_tid = gk_shared_page.pid;
    t->tid = next_tid++;
    t->state = ThreadState::blocked;
    ++live_threads;
    return t;
}

void restart_thread_ids() {
    current->tid = gk_shared_page.pid;
    next_tid = gk_shared_page.pid + 1;
}

void free_thread(Thread* t) { t->state = ThreadState::free; }

void time_slice() {
    if (now_mono() - slice_start > kTimeSliceNs)
        gk_shared_page.preempt |= abi::kPreemptYield;
}

bool poll_host_rarely() {
    const u64 since = now_mono() - host_asked;
    if (since < kRarelyNs || (++polls_since_asked < kRarelyTries && since < kTimeSliceNs))
        return false;
    poll_host(true);
    return true;
}

void note_unsent() {
    if (unsent_since == 0)
        unsent_since = now_mono();
}

bool let_others_run() {
    if (gk_shared_page.preempt & abi::kPreemptYield) {
        poll_host(unsent_since != 0);
        gk_shared_page.preempt &= ~abi::kPreemptYield;
        yield();
    }
    return !signal_pending(current);
}

void make_runnable(Thread* t) {
    if (t->state != ThreadState::blocked)
        return;
    t->state = ThreadState::runnable;
    t->run_next = nullptr;
    if (run_tail)
        run_tail->run_next = t;
    else
        run_head = t;
    run_tail = t;
}

void make_runnable_first(Thread* t) {
    if (t->state != ThreadState::blocked)
        return;
    t->state = ThreadState::runnable;
    t->run_next = run_head;
    run_head = t;
    if (!run_tail)
        run_tail = t;
}

void wait_at_once() {
    wait_for_host();
    slice_start = now_mono();
}

void yield() {
    if (!run_head) {
        slice_start = now_mono();
        return;
    }
    current->state = ThreadState::blocked;
    make_runnable(current);
    reschedule();
}

void block(u64 deadline) {
    current->timed_out = false;
    if (signal_pending(current))
        return;
    current->deadline = deadline;
    current->state = ThreadState::blocked;
    reschedule();
    current->deadline = kNever;
}

Wake wait_io(u64 deadline) {
    if (signal_pending(current)) {
        clear_interest();
        return Wake::signal;
    }
    current->waits_for_io = true;
    block(deadline);
    current->waits_for_io = false;
    clear_interest();
    if (signal_pending(current))
        return Wake::signal;
    return current->timed_out ? Wake::timeout : Wake::event;
}

void notify_io() {
    for (u32 i = 0; i < thread_limit; ++i)
        if (threads[i] && threads[i]->waits_for_io)
            make_runnable(threads[i]);
}

void check_timers() {
    const u64 now = now_mono();
    fire_timers(now);
    for (u32 i = 0; i < thread_limit; ++i) {
        Thread* t = threads[i];
        if (t && t->state == ThreadState::blocked && mono_of(t->deadline) <= now) {
            t->timed_out = true;
            t->deadline = kNever;
            make_runnable(t);
        }
    }
}

void poll_host(bool force) {
    describe_wait(true);
    if (!force && gk_shared_page.wait.listeners == 0 && gk_shared_page.wait.handle_count == 0) {
        check_timers();
        return;
    }
    host_call(abi::kPoll);
    take_results();
}

void thread_exit_current() {
    --live_threads;
    if (vector_owner == current)
        vector_owner = nullptr;
    current->state = ThreadState::dead; // the slot cannot be reused while its stack is in use
    drop_pending(current->sig_pending, ~u64{0});
    drop_credentials(current);
    current->deadline = kNever;
    current->waits_for_io = false;
    zombie = current;
    not_ready(current);
    // Another thread reaps the zombie, so wait_for_host() may run on its stack.
    retarget_process_signals();
    reschedule();
    fatal("a dead thread ran");
}

void vector_save_current() {
    own_vector();
    save_vector(current);
}

void vector_restore_current() {
    if (vector_owner && vector_owner != current)
        save_vector(vector_owner);
    load_vector(current);
    vector_owner = current;
}

Regs* user_regs(Thread* t) { return reinterpret_cast<Regs*>(t->stack + kThreadStackBytes) - 1; }

namespace {
void leave_to_debugger(Regs* regs) {
    constexpr u64 kTrapFlag = 0x100;
    if (gk_shared_page.preempt & abi::kPreemptStop)
        debug_stop(abi::kStopAsked);
    regs->rflags &= ~kTrapFlag;
    if ((gk_shared_page.preempt & abi::kPreemptStep) && gk_shared_page.debug_thread == current->tid)
        regs->rflags |= kTrapFlag; // traps in the guest kernel, which the host knows
}
} // namespace

Regs* leave(Regs* regs) {
    if (unsent_since != 0 && now_mono() - unsent_since > kHoldNs)
        poll_host(true);
    if (gk_shared_page.preempt & abi::kPreemptYield) {
        poll_host(unsent_since != 0);
        gk_shared_page.preempt &= ~abi::kPreemptYield;
        yield();
    }
    if (current->ending) [[unlikely]]
        thread_exit_current();
    forget_answers();
    own_vector();
    // During the yield, another thread may have taken the signal that interrupted the call. Then the call is restarted.
    if (signal_pending(current) || interrupted(regs))
        deliver_signals(regs);
    own_vector();
    regs->rflags = (regs->rflags & ~u64{0x100}) | 0x200; // TF would trap in the guest kernel
    if (gk_shared_page.preempt & (abi::kPreemptStop | abi::kPreemptStep)) [[unlikely]]
        leave_to_debugger(regs);
    if (regs->rip >> 47) // not canonical: the jump would fault in the guest kernel
        regs->rip = 0;
    return regs;
}

u64 debug_stop(abi::DebugStop why, i32 signal) {
    vector_save_current();
    const i64 go_on_with = host_call(abi::kDebugStop, why, static_cast<u64>(signal));
    vector_restore_current();
    return static_cast<u64>(go_on_with);
}

extern "C" Regs* gk_thread_begin() {
    reap();
    return leave(user_regs(current));
}

extern "C" Regs* gk_preempt(Regs* regs) {
    gk_shared_page.preempt |= abi::kPreemptYield;
    return leave(regs);
}

extern "C" const u8 gk_resume_begin, gk_resume_end;
static_assert(static_cast<u8>(ThreadState::free) == abi::kDebugThreadFree);
static_assert(static_cast<u8>(ThreadState::dead) == abi::kDebugThreadDead);
static_assert(sizeof(Thread::name) == abi::kDebugNameBytes);
extern "C" const abi::DebugTable gk_debug_table{
    threads,
    &thread_limit,
    &current,
    &gk_resume_begin,
    &gk_resume_end,
    kThreadStackBytes,
    offsetof(Thread, state),
    offsetof(Thread, tid),
    offsetof(Thread, stack),
    offsetof(Thread, fs_base),
    offsetof(Thread, gs_base),
    offsetof(Thread, xsave),
    offsetof(Thread, name),
};

} // namespace gk
