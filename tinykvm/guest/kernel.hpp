// The guest kernel: small freestanding code at CPL 3 inside the machine that answers most system calls.
// It holds no privilege: a program that corrupts it harms only itself. There is one vCPU, so it needs no locks. It is
// never preempted: when the host's timer finds it running, the host only sets Shared::preempt.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/abi/layout.hpp"
#include "tinykvm/guest/credentials.hpp"

namespace gk {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i32 = std::int32_t;
using i64 = std::int64_t;
namespace abi = tinykvm::abi;
namespace layout = tinykvm::layout;

inline constexpr u64 kNever = ~u64{0};

// clang-format off
enum Errno : i64 {
    EPERM = 1, ENOENT = 2, ESRCH = 3, EINTR = 4, EIO = 5, EBADF = 9, ECHILD = 10, EAGAIN = 11, ENOMEM = 12, EACCES = 13,
    EFAULT = 14, EBUSY = 16, EEXIST = 17, ENOTDIR = 20, EINVAL = 22, ENFILE = 23, EMFILE = 24, ENOTTY = 25, ESPIPE = 29,
    EPIPE = 32, ERANGE = 34, ENAMETOOLONG = 36, ENOSYS = 38, ELOOP = 40, ENOTSOCK = 88, EDESTADDRREQ = 89,
    EMSGSIZE = 90,
    ENOPROTOOPT = 92, EPROTONOSUPPORT = 93, EOPNOTSUPP = 95, EAFNOSUPPORT = 97, EADDRINUSE = 98, ENETUNREACH = 101,
    ECONNRESET = 104, ENOBUFS = 105, EISCONN = 106, ENOTCONN = 107, ETIMEDOUT = 110, EALREADY = 114, EINPROGRESS = 115,
    ERESTARTSYS = 512,    // restart if the handler has SA_RESTART, else EINTR
    ERESTARTNOHAND = 514, // restart if no handler ran, else EINTR
    ECONNREFUSED = 111, ENODEV = 19, EISDIR = 21, EFBIG = 27, EXDEV = 18,
    ENXIO = 6, ENOSPC = 28, ENOTEMPTY = 39, ENODATA = 61, EOVERFLOW = 75,
};
// clang-format on

// The program's registers as the entries in entry.S push them.
using Regs = abi::ThreadRegisters;

extern "C" abi::Shared gk_shared_page;
extern "C" const volatile abi::TimePage gk_time_page;
extern "C" abi::Conn gk_conn_table[abi::kMaxConns];
extern "C" u8 gk_conn_buffers[];
extern "C" u8 gk_heap[];
extern "C" u64 gk_entry_rip, gk_kernel_stack;
extern "C" const u8 gk_stub_entry;
extern "C" void gk_host_out();
extern "C" void gk_wait_out();
extern "C" void gk_switch(u64* save_rsp, u64 load_rsp);
extern "C" void gk_thread_start();
extern "C" u64 gk_copy_raw(void* to, const void* from, u64 bytes);
extern "C" void* memcpy(void*, const void*, std::size_t);
extern "C" void* memset(void*, int, std::size_t);

// --- host calls (host.cpp) -----------------------------------------------------------------------
i64 host_call(u32 nr, u64 a0 = 0, u64 a1 = 0, u64 a2 = 0, u64 a3 = 0, u64 a4 = 0, u64 a5 = 0);
// As host_call, for arguments that come from the program and may be pointers: -EFAULT if one points into the guest
// kernel.
i64 pass_call(u32 nr, u64 a0, u64 a1 = 0, u64 a2 = 0, u64 a3 = 0, u64 a4 = 0, u64 a5 = 0);
extern bool file_mapped; // a writable shared mapping exists: a file may change without a call
u64 file_changes();      // grows with every call that may change a file, and with every restore or reset
template <class T>
u64 address(T* p) {
    return reinterpret_cast<u64>(p);
}
[[noreturn]] void fatal(const char* what); // a bug of the guest kernel: ends the machine

// --- memory of the program (host.cpp) ------------------------------------------------------------
// False if any byte is not accessible; other bytes may have been copied.
bool copy_from_user(void* to, u64 from, u64 bytes);
bool copy_to_user(u64 to, const void* from, u64 bytes);
bool clear_user(u64 to, u64 bytes);
template <class T>
bool get_user(T& to, u64 from) {
    return copy_from_user(&to, from, sizeof(T));
}
template <class T>
bool put_user(u64 to, const T& from) {
    return copy_to_user(to, &from, sizeof(T));
}
// True unless the value points into the guest kernel's part of the address space. It need not be a pointer.
inline bool program_pointer(u64 value) { return value < layout::kUserMax || value >= u64{1} << 47; }
// Whether the range lies in the program's part of the address space. It need not be mapped.
bool user_ok(u64 at, u64 bytes);
// Length without the NUL, or -EFAULT or -ENAMETOOLONG. `to` is NUL-terminated.
i64 string_from_user(char* to, u64 from, u64 room);

// --- heap (host.cpp): power-of-two blocks, never given back to the host --------------------------
void* allocate(u64 bytes);       // zeroed; null when the guest kernel's heap is full
void* allocate_dirty(u64 bytes); // not zeroed: pages of a buffer that are never used stay untouched
void release(void* p, u64 bytes);
template <class T>
T* make() {
    void* p = allocate(sizeof(T));
    return p ? new (p) T : nullptr;
}
template <class T>
void destroy(T* p) {
    release(p, sizeof(T));
}

// --- time (time.cpp) -----------------------------------------------------------------------------
u64 now_mono(); // ns
u64 now_real();
u64 now_boot();
void charge_cpu(u64 now); // charges the time since the last call to the current thread and the process
void skip_cpu(u64 now);   // no thread ran until now: charges nothing
struct Timespec {
    i64 sec, nsec;
};
bool valid(const Timespec& t);
u64 to_ns(const Timespec& t); // saturating
Timespec from_ns(u64 ns);
// A deadline is a guest monotonic time, 0 for "now", kNever, or a guest boot time with kByBootTime set. Between the
// snapshot and an invocation the monotonic clock pauses. Waits for a time of day or on CLOCK_BOOTTIME must not be
// prolonged by that, so their deadlines use boot time.
constexpr u64 kByBootTime = u64{1} << 63;
u64 deadline_of(i32 clock, bool absolute, const Timespec& t);
u64 now_like(u64 deadline); // now, by the clock of this deadline
u64 mono_of(u64 deadline);  // the deadline in monotonic time, as the clocks stand now
inline bool has_passed(u64 deadline) { return deadline != kNever && deadline <= now_like(deadline); }

// --- threads and scheduler (sched.cpp, thread.cpp) -----------------------------------------------
struct SigStack {
    u64 sp = 0;
    i32 flags = 2 /*SS_DISABLE*/;
    u32 pad = 0;
    u64 size = 0;
};
struct SigInfo {
    i32 signo = 0, error = 0, code = 0;
    u32 pad = 0;
    u64 f0 = 0, f1 = 0;
}; // f0: pid/uid or address; f1: value
struct QueuedSignal;
// Pending signals in order of arrival: at most one of each standard signal, any number of each real-time signal.
struct Pending {
    u64 bits = 0;
    QueuedSignal* head = nullptr;
};

struct HandleInterest {
    i32 handle;
    u32 events;
};
inline constexpr u32 kMaxInterest = abi::kMaxWaitHandles;

enum class ThreadState : u8 { free, runnable, blocked, dead };
struct Thread {
    ThreadState state = ThreadState::free;
    bool waits_for_io = false; // woken by notify_io()
    bool timed_out = false;
    bool restore_mask = false;
    bool ending = false; // a fork ends it: it returns from what it waits for, as for a signal, and not to the program
    u32 tid = 0;
    u64 stack = 0;      // kernel stack, kThreadStackBytes
    u64 kernel_rsp = 0; // valid while switched out
    u64 fs_base = 0, gs_base = 0;
    u8* xsave = nullptr;
    u64 deadline = kNever;
    u64 futex_key = 0; // key of the futex it waits on (calls.hpp); 0: none
    u32 futex_bits = 0;
    bool futex_woken = false;
    Thread* futex_next = nullptr;
    Thread* run_next = nullptr;
    u64 sig_mask = 0, saved_mask = 0;
    u64 sig_waited = 0; // signals sigtimedwait waits for: they wake it although they are masked
    Pending sig_pending;
    SigStack alt_stack;
    u64 clear_child_tid = 0, robust_list = 0;
    HandleInterest* interest = nullptr; // room for kMaxInterest, allocated at first use
    u32 interest_count = 0;
    bool interest_overflow = false; // more handles than fit: the thread polls again from time to time
    char name[16] = {};
    Credentials ids;
    u64 timer_slack = 0; // PR_SET_TIMERSLACK; 0: the default
    u64 cpu_ns = 0;      // CPU time charged so far (charge_cpu)
    u8 policy = 0;       // SCHED_*
    bool reset_on_fork = false;
    signed char nice = 0;
    u16 io_priority = 0;
    u64 refused_rsp = 0, refused_at = 0; // the last refused fork: RSP of the caller, and time
};
inline constexpr u64 kThreadStackBytes = 16384;
inline constexpr u32 kMaxThreads = 1024;
extern Thread* current;
extern Thread* threads[kMaxThreads];
extern u32 thread_limit; // slots ever used
extern u32 live_threads;

Thread* new_thread(); // null: no slot or no memory
void free_thread(Thread*);
void make_runnable(Thread*);
void make_runnable_first(Thread*); // before all others
inline bool alive(const Thread* t) { return t && t->state != ThreadState::free && t->state != ThreadState::dead; }
void yield();
// Blocks the current thread until make_runnable(), its deadline (timed_out) or a signal that it does not mask.
void block(u64 deadline);
// Waits for the host on the current thread's stack although other threads may be able to run.
void wait_at_once();
enum class Wake { event, timeout, signal };
// Blocks until something may have become ready (notify_io), the deadline, or a signal.
Wake wait_io(u64 deadline);
void notify_io();           // wakes every thread in wait_io
void check_timers();        // fires timers that are due, and wakes threads whose deadline has passed
void poll_host(bool force); // asks the host for new events without waiting; unless forced, only if there is interest
// Called when a non-blocking call found nothing. Asks the host for events, at most once a millisecond, so that a
// program that never waits sees them too. True: the host was asked, so look again.
bool poll_host_rarely();
inline constexpr u64 kTimeSliceNs = 10'000'000;
// Called after each host call. Preemption ticks do not reach a thread that calls the host all the time, so this ends
// its time slice.
void time_slice();
// Called in every loop that moves many bytes: yields when the time slice is over. False: a signal is pending, end the
// call.
bool let_others_run();
[[noreturn]] void thread_exit_current();
void restart_thread_ids();     // of a new process with one thread
void vector_restore_current(); // loads the registers after the thread's saved vector state was changed
void vector_save_current();    // brings the thread's saved vector state up to date
Regs* user_regs(Thread*);
Regs* leave(Regs*); // last step of every entry: preemption, signals, vector state
// Stops for the debugger, which may change registers and memory of all threads. Returns the signal to go on with.
u64 debug_stop(abi::DebugStop why, i32 signal = 0);

// --- signals (signal.cpp) ------------------------------------------------------------------------
inline constexpr i32 SIGILL_ = 4, SIGTRAP_ = 5, SIGABRT_ = 6, SIGBUS_ = 7, SIGFPE_ = 8, SIGKILL_ = 9, SIGSEGV_ = 11,
                     SIGPIPE_ = 13, SIGALRM_ = 14, SIGCHLD_ = 17, SIGCONT_ = 18, SIGSTOP_ = 19, SIGTSTP_ = 20,
                     SIGTTIN_ = 21, SIGTTOU_ = 22, SIGURG_ = 23, SIGXCPU_ = 24, SIGXFSZ_ = 25, SIGVTALRM_ = 26,
                     SIGPROF_ = 27, SIGWINCH_ = 28, SIGIO_ = 29;
bool send_signal(Thread* to, i32 signal, const SigInfo& info); // to one thread; false: the queue is full
bool send_process_signal(i32 signal, const SigInfo& info);     // to any thread that does not mask it
void broken_pipe();                                            // sends SIGPIPE to the current thread
void drop_pending(Pending&, u64 which);
void drop_all_pending(); // of the process and the current thread
// Wakes another thread for process signals that the current thread masks, or cannot take because it exits.
void retarget_process_signals();
void force_signal(i32 signal, const SigInfo& info); // for faults: cannot be masked or ignored
bool signal_pending(const Thread*);
void deliver_signals(Regs*);
// Whether the system call's result is ERESTARTSYS or ERESTARTNOHAND, which the program must not see.
bool interrupted(const Regs*);

// --- files ---------------------------------------------------------------------------------------
enum : u32 {
    POLLIN_ = 1,
    POLLPRI_ = 2,
    POLLOUT_ = 4,
    POLLERR_ = 8,
    POLLHUP_ = 0x10,
    POLLNVAL_ = 0x20,
    POLLRDHUP_ = 0x2000,
    POLLRDNORM_ = 0x40,
    POLLWRNORM_ = 0x100
};
enum : u32 {
    O_WRONLY_ = 1,
    O_RDWR_ = 2,
    O_ACCMODE_ = 3,
    O_CREAT_ = 0x40,
    O_APPEND_ = 0x400,
    O_NONBLOCK_ = 0x800,
    O_DIRECTORY_ = 0x10000,
    O_CLOEXEC_ = 0x80000,
    O_PATH_ = 0x200000
};

struct IoVec {
    u64 base, length;
};
// A position in the program's buffers.
struct Cursor {
    IoVec* vec; // changed as the cursor advances
    u64 count;
    u64 left;            // bytes
    bool kernel = false; // the buffers are in guest kernel memory
    void advance(u64 bytes);
    void shorten(u64 bytes); // limits what is left to `bytes`, in `vec` too
    // Copy up to `bytes` to (put) or from (get) the program. Bytes moved, or -EFAULT if none could be.
    i64 put(const void* from, u64 bytes);
    i64 get(void* to, u64 bytes);
};

struct File;
struct EpollItem;
struct FileOps {
    i64 (*read)(File*, Cursor&, i64 offset); // offset -1: the current file position
    i64 (*write)(File*, Cursor&, i64 offset);
    u32 (*poll)(File*);   // POLL* events that hold now
    void (*close)(File*); // called without references left: frees the object
    const char* name;
};
enum class Kind : u8 { host, socket, pipe, event, timer, epoll, signal, message_queue, own };
struct File {
    const FileOps* ops = nullptr;
    Kind kind = Kind::host;
    u32 refs = 1;
    u32 flags = 0;      // O_* as F_GETFL returns them
    u32 in_events = 0;  // counts arrivals of data, for edge-triggered epoll
    u32 out_events = 0; // counts times that room appeared, likewise
    EpollItem* watchers = nullptr;
};
inline bool nonblocking(const File* f) { return (f->flags & O_NONBLOCK_) != 0; }
void event_in(File*);  // data arrived: counts the event and wakes waiters
void event_out(File*); // room appeared: likewise
// For files on the host, whose events the guest kernel does not see: each read or write counts an event, so that
// edge-triggered epoll reports the next readiness.
inline void took_in(File* f) { ++f->in_events; }
inline void took_out(File* f) { ++f->out_events; }

struct Descriptor {
    File* file;
    bool cloexec;
};
File* file_of(i32 fd); // null: EBADF
// The new descriptor, which takes over the caller's reference. On failure (-EMFILE, -EINVAL) the caller keeps it.
i32 install(File*, bool cloexec, i32 lowest = 0);
i32 install_or_release(File*, bool cloexec); // the same, but drops the reference on failure
// The parent keeps its ends of pipes and socket pairs open, so that a child that closes its own sees no end of file.
// With `listeners` it goes on listening, too.
void hold_for_parent(bool listeners);
void ref(File*);
void unref(File*);
void close_all_epoll_items(File*);
i64 close_fd(i32 fd);
void close_all_fds();

struct HostFile : File {
    i32 handle = abi::kNoHandle;
    bool seekable = false;
    u32 mode = 0;
    u64 offset = 0;
    u64 fresh_until = 0;   // until then `stat` is used without asking the host (a file just opened for reading)
    u64 fresh_changes = 0; // file_changes() when `stat` was filled in
    u8 stat[144] = {};
    bool fresh() const {
        return !file_mapped && fresh_until != 0 && fresh_changes == file_changes() && now_mono() < fresh_until;
    }
};
HostFile* make_host_file(i32 handle, u32 flags, bool seekable, u32 mode);
// The content of the small file that was opened last. Valid while that file is fresh().
struct Content {
    const HostFile* owner;
    u32 bytes;
    u8 data[abi::kContentBytes];
};
extern Content last_content;
// The host handle of a file for a host call, or -1 if it has none.
i32 handle_of(File*);
u32 poll_handle(i32 handle, u32 events); // asks the host now, unless ask_handles() just did
void ask_handles();                      // polls all handles of the current thread's interest in one host call
void forget_answers();                   // the host's last poll results are out of date
void note_answers();                     // the host has just put poll results into Shared::wait
// The handles that wake the current thread's next wait_io(), which clears them.
void add_interest(i32 handle, u32 events);
void clear_interest();
void collect_interest(File*, u32 events); // adds the handles that a poll on this file depends on

i64 write_kernel(File*, const void* from, u64 bytes); // write_file from the guest kernel's own memory
// These check the access mode and call the file's FileOps.
i64 read_file(File*, Cursor&, i64 offset);
i64 write_file(File*, Cursor&, i64 offset);
u32 poll_file(File*);

void init_files();
void init_cpuid();
void init_time();
void conns_updated(); // after the host returned: looks for changed connections
// A connection has unsent bytes. The host sends them at the next wait. If the program goes on computing, leave() in
// sched.cpp tells the host earlier.
void note_unsent();

u64 next_timer(); // when the next armed timer of any kind is due
void fire_timers(u64 now);

// --- system calls --------------------------------------------------------------------------------
struct Args {
    u64 a[6];
    Regs* regs;
};
using Call = i64 (*)(const Args&);
extern const Call* const call_table; // 512 rows

} // namespace gk

inline void* operator new(std::size_t, void* p) noexcept { return p; }
