// fork: a machine is one process, so the child goes on in its parent's place. While the program starts, that suits
// servers whose workers accept connections themselves, since their parents only watch over them. In an invocation it
// suits those that fork for each connection: their parents would accept the next one, which gets another machine. The
// host decides (see tinykvm/machine/single_process.hpp). Everything else is refused.
#include "tinykvm/guest/calls.hpp"
#include "tinykvm/guest/timers.hpp"

namespace gk {
namespace {

u32 parent_pid = abi::kParentPid;
bool child_serves = false; // this process is the child of one that waits for the next connection

// libuv and others return EAGAIN and EACCES to their caller, but treat EPERM as a bug of their own. Perl, Ruby and
// shells sleep and retry after EAGAIN, some forever: a thread that retries from the same place gets EACCES.
i64 refuse(u64 rsp) {
    constexpr u64 kRetryNs = 30'000'000'000;
    const u64 now = now_mono();
    const bool again = current->refused_rsp == rsp && now - current->refused_at < kRetryNs;
    current->refused_rsp = rsp;
    current->refused_at = now;
    return again ? -EACCES : -EAGAIN;
}

// A child has a copy of the calling thread alone. The others leave what they wait for, and end.
void end_other_threads() {
    for (u32 i = 0; i < thread_limit; ++i)
        if (alive(threads[i]) && threads[i] != current) {
            threads[i]->ending = true;
            make_runnable(threads[i]);
        }
    while (live_threads > 1)
        yield();
    for (u32 i = 0; i < thread_limit; ++i)
        if (threads[i] == current) {
            threads[i] = threads[0];
            threads[0] = current;
            return;
        }
}

} // namespace

u32 own_parent() { return parent_pid; }

void end_process(u32 status) {
    if (!child_serves) {
        host_call(abi::kExit, status);
        fatal("the host went on after exit");
    }
    // Its parent waits for the next connection, in this machine as it were, which is reset once this one is closed.
    current->sig_mask = ~u64{0};
    end_other_threads();
    drop_all_pending();
    drop_posix_timers();
    stop_interval_timers();
    close_all_fds();
    for (;;)
        wait_io(kNever);
}

i64 fork(Regs* regs, const Fork& how) {
    const u32 parent = gk_shared_page.pid;
    // The host also gives the machine its new process number, and zeroes MADV_WIPEONFORK memory.
    const i64 followed = host_call(abi::kRefused, how.vfork ? 58 : 57);
    if (followed <= 0)
        return refuse(regs->rsp);
    child_serves |= (followed & abi::kChildServes) != 0;
    end_other_threads();
    parent_pid = parent;
    restart_thread_ids();
    leave_group();
    drop_all_pending();
    drop_posix_timers();
    stop_interval_timers();
    hold_for_parent(child_serves);
    current->robust_list = 0;
    current->clear_child_tid = how.clear_tid;
    if (how.stack)
        regs->rsp = how.stack;
    if (how.set_tid) {
        const u32 tid = current->tid;
        put_user(how.set_tid, tid);
    }
    return 0;
}

} // namespace gk
