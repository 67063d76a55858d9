// System call handlers, and helpers shared by the files that implement them. A handler takes the call's arguments and
// returns a value or -errno.
#pragma once
#include "tinykvm/guest/kernel.hpp"

namespace gk {

// The key of a futex is its address, which is even, plus kSharedKey if it is not private. A wake of one kind does not
// reach waiters of the other (kernel/futex/core.c, get_futex_key).
inline constexpr u64 kSharedKey = 1;
i64 futex_wake(u64 key, u32 count, u32 bits); // returns the number of threads woken
void robust_exit(Thread*);
u64 cpu_ns(); // CPU time of the process
u64 thread_cpu_ns(const Thread*);
i32 file_limit(); // soft RLIMIT_NOFILE, at most the size of the fd table
void set_file_limit(u64);
u32 creation_mask();                 // umask
void publish_self();                 // publishes Shared::self, from which the host answers /proc/self
void publish_group(abi::SelfState&); // the part of it that ids.cpp knows
void leave_group();                  // a child leads neither a group nor a session
u32 own_parent();

struct Fork {
    bool vfork = false; // or a clone that shares memory
    u64 stack = 0;      // 0: the child goes on on the same
    u64 set_tid = 0, clear_tid = 0;
};
i64 fork(Regs*, const Fork&);
[[noreturn]] void end_process(u32 status);
void not_ready(Thread*);    // it ends
void look_for_call();       // the host may have asked for a call of a function: wakes the thread that runs it
i64 sys_ready(const Args&); // rows of abi::OwnCalls
i64 sys_returned(const Args&);
i64 sys_call_host(const Args&);
bool is_own_process(i32 pid); // 0, this process's current pid, or the pid it had when the snapshot was made
Thread* thread_of(i32 tid);   // a live thread of this process, or null
// prctl(2) on capabilities (capabilities.cpp)
i64 drop_bounding(u64 capability_number);
i64 change_ambient(u64 what, u64 capability_number);
i64 set_secure_bits(u64);
i64 keep_capabilities(u64 keep);
// Calls that Linux has with and without a folder descriptor; `nr` is the *at form. `reply` is guest kernel memory,
// passed in place of a4.
i64 path_call(u32 nr, u64 dir, u64 a1, u64 a2 = 0, u64 a3 = 0, u64 a4 = 0, void* reply = nullptr);
i64 record_lock(File*, u32 command, u64 at); // fcntl(2) record locks
i64 bytes_ready(File*);                      // FIONREAD; -1: the host must be asked
i64 pipe_bytes_ready(File*);
i64 install_two(File*, File*, bool cloexec, u64 to); // stores both new descriptors in the program's int[2]
i32 offered_to(u32 listener);                        // slot of a connection that waits for accept, or -1
void collect_conn_interest(File*, u32 events);       // sets Conn::want_rx and want_tx of a client's connection
u64 deadline_ms(i64 ms);            // timeout of poll and epoll_wait: kNever when negative, 0 for "now"
bool always_ready(const HostFile*); // regular files and folders
bool no_poll(HostFile*);            // epoll_ctl fails with EPERM
void pass_on_event(const File*);    // counts an event for every epoll that watches the file, directly or indirectly
// Installs the signal mask of ppoll and the like for the rest of the call. False with `error` set.
bool use_temporary_mask(u64 at, u64 bytes, i64& error);
// Takes and returns the call's result. Restores the old mask, unless a signal is still to be delivered under the new
// one.
i64 drop_temporary_mask(i64 result);
void init_paths();
void init_xsave(u8* area); // writes the smallest valid XSAVE area

i64 sys_accept(const Args&);
i64 sys_accept4(const Args&);
i64 sys_access(const Args&);
i64 sys_alarm(const Args&);
i64 sys_arch_prctl(const Args&);
i64 sys_bind(const Args&);
i64 sys_capget(const Args&);
i64 sys_capset(const Args&);
i64 sys_chdir(const Args&);
i64 sys_chmod(const Args&);
i64 sys_chown(const Args&);
i64 sys_clock_getres(const Args&);
i64 sys_clock_gettime(const Args&);
i64 sys_clock_nanosleep(const Args&);
i64 sys_clock_settime(const Args&);
i64 sys_clone(const Args&);
i64 sys_close(const Args&);
i64 sys_close_range(const Args&);
i64 sys_connect(const Args&);
i64 sys_copy_file_range(const Args&);
i64 sys_creat(const Args&);
i64 sys_dup(const Args&);
i64 sys_dup2(const Args&);
i64 sys_dup3(const Args&);
i64 sys_echild(const Args&);
i64 sys_einval(const Args&);
i64 sys_enosys_quiet(const Args&);
i64 sys_eperm(const Args&);
i64 sys_epoll_create(const Args&);
i64 sys_epoll_create1(const Args&);
i64 sys_epoll_ctl(const Args&);
i64 sys_epoll_pwait(const Args&);
i64 sys_epoll_pwait2(const Args&);
i64 sys_epoll_wait(const Args&);
i64 sys_eventfd(const Args&);
i64 sys_eventfd2(const Args&);
i64 sys_exit(const Args&);
i64 sys_exit_group(const Args&);
i64 sys_fchown(const Args&);
i64 sys_fchownat(const Args&);
i64 sys_fchdir(const Args&);
i64 sys_fcntl(const Args&);
i64 sys_flock(const Args&);
i64 sys_fork(const Args&);
i64 sys_fstat(const Args&);
i64 sys_ftruncate(const Args&);
i64 sys_futex(const Args&);
i64 sys_get_robust_list(const Args&);
i64 sys_getcpu(const Args&);
i64 sys_getcwd(const Args&);
i64 sys_getdents64(const Args&);
i64 sys_getegid(const Args&);
i64 sys_geteuid(const Args&);
i64 sys_getgid(const Args&);
i64 sys_getgroups(const Args&);
i64 sys_getitimer(const Args&);
i64 sys_getpeername(const Args&);
i64 sys_getpgid(const Args&);
i64 sys_getpgrp(const Args&);
i64 sys_getpid(const Args&);
i64 sys_getppid(const Args&);
i64 sys_getpriority(const Args&);
i64 sys_getrandom(const Args&);
i64 sys_getresgid(const Args&);
i64 sys_getresuid(const Args&);
i64 sys_getrlimit(const Args&);
i64 sys_getrusage(const Args&);
i64 sys_getsid(const Args&);
i64 sys_getsockname(const Args&);
i64 sys_getsockopt(const Args&);
i64 sys_gettid(const Args&);
i64 sys_gettimeofday(const Args&);
i64 sys_getuid(const Args&);
i64 sys_handle_call(const Args&);
Args only_arguments(const Args&); // for a call to the host: zeroes the registers that hold no argument of the call
i64 sys_host_call(const Args&);
i64 sys_inotify_add_watch(const Args&);
i64 sys_inotify_init(const Args&);
i64 sys_inotify_init1(const Args&);
i64 sys_inotify_rm_watch(const Args&);
i64 sys_ioctl(const Args&);
i64 sys_ioprio_get(const Args&);
i64 sys_ioprio_set(const Args&);
i64 sys_kill(const Args&);
i64 sys_lchown(const Args&);
i64 sys_link(const Args&);
i64 sys_linkat(const Args&);
i64 sys_listen(const Args&);
i64 sys_lone_path(const Args&);
i64 sys_lseek(const Args&);
i64 sys_lstat(const Args&);
i64 sys_madvise(const Args&);
i64 sys_membarrier(const Args&);
i64 sys_memfd_create(const Args&);
i64 sys_mkdir(const Args&);
i64 sys_mkdirat(const Args&);
i64 sys_mlock2(const Args&);
i64 sys_mlockall(const Args&);
i64 sys_mmap(const Args&);
i64 sys_mq_getsetattr(const Args&);
i64 sys_mq_notify(const Args&);
i64 sys_mq_open(const Args&);
i64 sys_mq_timedreceive(const Args&);
i64 sys_mq_timedsend(const Args&);
i64 sys_mq_unlink(const Args&);
i64 sys_msgctl(const Args&);
i64 sys_msgget(const Args&);
i64 sys_msgrcv(const Args&);
i64 sys_msgsnd(const Args&);
i64 sys_mknodat(const Args&);
i64 sys_mknod(const Args&);
i64 sys_nanosleep(const Args&);
i64 sys_newfstatat(const Args&);
i64 sys_open(const Args&);
i64 sys_openat(const Args&);
i64 sys_openat2(const Args&);
i64 sys_path_call(const Args&);
i64 sys_pause(const Args&);
i64 sys_personality(const Args&);
i64 sys_pipe(const Args&);
i64 sys_pipe2(const Args&);
i64 sys_poll(const Args&);
i64 sys_ppoll(const Args&);
i64 sys_prctl(const Args&);
i64 sys_pread64(const Args&);
i64 sys_preadv(const Args&);
i64 sys_preadv2(const Args&);
i64 sys_prlimit64(const Args&);
i64 sys_pselect6(const Args&);
i64 sys_pwrite64(const Args&);
i64 sys_pwritev(const Args&);
i64 sys_pwritev2(const Args&);
i64 sys_read(const Args&);
i64 sys_readlink(const Args&);
i64 sys_readlinkat(const Args&);
i64 sys_readv(const Args&);
i64 sys_recvfrom(const Args&);
i64 sys_recvmmsg(const Args&);
i64 sys_recvmsg(const Args&);
i64 sys_rename(const Args&);
i64 sys_renameat(const Args&);
i64 sys_renameat2(const Args&);
i64 sys_rmdir(const Args&);
i64 sys_rt_sigaction(const Args&);
i64 sys_rt_sigpending(const Args&);
i64 sys_rt_sigqueueinfo(const Args&);
i64 sys_rt_tgsigqueueinfo(const Args&);
i64 sys_rt_sigprocmask(const Args&);
i64 sys_rt_sigreturn(const Args&);
i64 sys_rt_sigsuspend(const Args&);
i64 sys_rt_sigtimedwait(const Args&);
i64 sys_sched_get_priority_max(const Args&);
i64 sys_sched_get_priority_min(const Args&);
i64 sys_sched_getaffinity(const Args&);
i64 sys_sched_getattr(const Args&);
i64 sys_sched_getparam(const Args&);
i64 sys_sched_getscheduler(const Args&);
i64 sys_sched_rr_get_interval(const Args&);
i64 sys_sched_setaffinity(const Args&);
i64 sys_sched_setattr(const Args&);
i64 sys_sched_setparam(const Args&);
i64 sys_sched_setscheduler(const Args&);
i64 sys_sched_yield(const Args&);
i64 sys_select(const Args&);
i64 sys_semctl(const Args&);
i64 sys_semget(const Args&);
i64 sys_semop(const Args&);
i64 sys_semtimedop(const Args&);
i64 sys_sendfile(const Args&);
i64 sys_sendmmsg(const Args&);
i64 sys_sendmsg(const Args&);
i64 sys_sendto(const Args&);
i64 sys_set_robust_list(const Args&);
i64 sys_set_tid_address(const Args&);
i64 sys_setfsgid(const Args&);
i64 sys_setfsuid(const Args&);
i64 sys_setgid(const Args&);
i64 sys_setgroups(const Args&);
i64 sys_setitimer(const Args&);
i64 sys_setpgid(const Args&);
i64 sys_setpriority(const Args&);
i64 sys_setregid(const Args&);
i64 sys_setresgid(const Args&);
i64 sys_setresuid(const Args&);
i64 sys_setreuid(const Args&);
i64 sys_setrlimit(const Args&);
i64 sys_setsid(const Args&);
i64 sys_setsockopt(const Args&);
i64 sys_setuid(const Args&);
i64 sys_shmat(const Args&);
i64 sys_shmctl(const Args&);
i64 sys_shmdt(const Args&);
i64 sys_shmget(const Args&);
i64 sys_shutdown(const Args&);
i64 sys_sigaltstack(const Args&);
i64 sys_signalfd(const Args&);
i64 sys_signalfd4(const Args&);
i64 sys_socket(const Args&);
i64 sys_socketpair(const Args&);
i64 sys_stat(const Args&);
i64 sys_statx(const Args&);
i64 sys_symlink(const Args&);
i64 sys_symlinkat(const Args&);
i64 sys_sysinfo(const Args&);
i64 sys_tgkill(const Args&);
i64 sys_time(const Args&);
i64 sys_timer_create(const Args&);
i64 sys_timer_delete(const Args&);
i64 sys_timer_getoverrun(const Args&);
i64 sys_timer_gettime(const Args&);
i64 sys_timer_settime(const Args&);
i64 sys_timerfd_create(const Args&);
i64 sys_timerfd_gettime(const Args&);
i64 sys_timerfd_settime(const Args&);
i64 sys_times(const Args&);
i64 sys_tkill(const Args&);
i64 sys_truncate(const Args&);
i64 sys_umask(const Args&);
i64 sys_uname(const Args&);
i64 sys_unlink(const Args&);
i64 sys_write(const Args&);
i64 sys_writev(const Args&);
i64 sys_zero(const Args&);

} // namespace gk
