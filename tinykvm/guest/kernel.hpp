// The guest kernel: small freestanding code at CPL 3 inside the machine that answers most system calls.
// It holds no privilege: a program that corrupts it harms only itself. One vCPU, so no locks; it is never
// preempted itself (the host only leaves a note in Shared::preempt when it finds it running).
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
    ERESTARTSYS = 512,    // restart when the handler says SA_RESTART, else EINTR
    ERESTARTNOHAND = 514, // restart when no handler ran, else EINTR
    ECONNREFUSED = 111, ENODEV = 19, EISDIR = 21, EFBIG = 27, EXDEV = 18,
    ENXIO = 6, ENOSPC = 28, ENOTEMPTY = 39, ENODATA = 61, EOVERFLOW = 75,
};
// clang-format on

// Registers of the program as the entries push them, lowest address first.
struct Regs {
    u64 r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi, orig_rax, rip, rflags, rsp;
};

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
// The same with arguments of the program's that may be pointers: -EFAULT when one leads into the guest kernel.
i64 pass_call(u32 nr, u64 a0, u64 a1 = 0, u64 a2 = 0, u64 a3 = 0, u64 a4 = 0, u64 a5 = 0);
extern bool file_mapped; // a shared mapping may change a file without a call
u64 file_changes();      // grows with every call that may have changed a file
template <class T>
u64 address(T* p) {
    return reinterpret_cast<u64>(p);
}
[[noreturn]] void fatal(const char* what); // a bug of the guest kernel: ends the machine

// --- memory of the program (user.cpp) ------------------------------------------------------------
// False when any byte is not accessible (the rest may have been copied).
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
inline bool program_pointer(u64 value) {
    return value < layout::kUserMax || value >= u64{1} << 47;
} // or no pointer at all
bool user_ok(u64 at, u64 bytes); // the program's part of the address space (nothing is said about what is mapped there)
// Length without the NUL, or -EFAULT / -ENAMETOOLONG; `to` gets a NUL.
i64 string_from_user(char* to, u64 from, u64 room);

// --- heap (heap.cpp): power-of-two blocks, never given back to the host --------------------------
void* allocate(u64 bytes);       // zeroed; null when the guest kernel's heap is full
void* allocate_dirty(u64 bytes); // with anything in it: for buffers, whose untouched pages then stay untouched
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
void charge_cpu(u64 now); // to the current thread: what passed since the last time
void skip_cpu(u64 now);   // all waited until now
struct Timespec {
    i64 sec, nsec;
};
bool valid(const Timespec& t);
u64 to_ns(const Timespec& t); // saturating
Timespec from_ns(u64 ns);
// A deadline is guest monotonic time, 0 for "now", kNever; or guest boot time with kByBootTime: between an image and an
// invocation the monotonic clock pauses, and who waits for a time of day, or by CLOCK_BOOTTIME, waits no longer for
// that.
constexpr u64 kByBootTime = u64{1} << 63;
u64 deadline_of(i32 clock, bool absolute, const Timespec& t); // of a relative or absolute time on a clock
u64 now_like(u64 deadline);                                   // now, in the terms of this deadline
u64 mono_of(u64 deadline);                                    // when it is, as things stand, by the monotonic clock
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
// Signals that wait for delivery: one of each standard one, any number of real-time ones, in order of arrival.
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
    u32 tid = 0;
    u64 stack = 0;      // kernel stack, kThreadStackBytes
    u64 kernel_rsp = 0; // while switched out
    u64 fs_base = 0, gs_base = 0;
    u8* xsave = nullptr;
    u64 deadline = kNever;
    u64 futex_address = 0; // while it waits on one; 0 otherwise
    u32 futex_bits = 0;
    bool futex_woken = false;
    Thread* futex_next = nullptr;
    Thread* run_next = nullptr;
    u64 sig_mask = 0, saved_mask = 0;
    u64 sig_waited = 0; // of sigtimedwait: wake although they are masked
    Pending sig_pending;
    SigStack alt_stack;
    u64 clear_child_tid = 0, robust_list = 0;
    HandleInterest* interest = nullptr; // kMaxInterest of them, made when needed
    u32 interest_count = 0;
    bool interest_overflow = false; // more than fit: looks again now and then
    char name[16] = {};
    Credentials ids;
    u64 timer_slack = 0; // PR_SET_TIMERSLACK; 0: the default
    u64 cpu_ns = 0;      // used until it was last switched out
    u8 policy = 0;       // SCHED_*
    bool reset_on_fork = false;
    signed char nice = 0;
    u16 io_priority = 0;
    u64 refused_rsp = 0, refused_at = 0; // of the last fork: who asked, and when
};
inline constexpr u64 kThreadStackBytes = 16384;
inline constexpr u32 kMaxThreads = 1024;
extern Thread* current;
extern Thread* threads[kMaxThreads];
extern u32 thread_limit; // slots ever used
extern u32 live_threads;

Thread* new_thread(); // null when there is no room
void free_thread(Thread*);
void make_runnable(Thread*);
inline bool alive(const Thread* t) { return t && t->state != ThreadState::free && t->state != ThreadState::dead; }
void yield();
// Blocks the current thread until make_runnable(), its deadline (timed_out) or a signal that it does not mask.
void block(u64 deadline);
enum class Wake { event, timeout, signal };
// Blocks until something may have become ready (notify_io), the deadline, or a signal.
Wake wait_io(u64 deadline);
void notify_io();
void check_timers();
void poll_host(bool force); // asks the host for new events without waiting
// For what was asked without waiting and found nothing: true when the host was asked for news (at most once a
// millisecond), so that programs that never wait see some, and looking again may help.
bool poll_host_rarely();
void time_slice(); // after the host was called: the ticks that preempt do not reach a thread that calls it all the time
// In every loop that moves much: other threads have their turn. False when a signal waits: the call is to end.
bool let_others_run();
[[noreturn]] void thread_exit_current();
void vector_restore_current(); // after the memory copy of the current thread's vector state was changed
void vector_save_current();
Regs* user_regs(Thread*);
Regs* leave(Regs*); // last step of every entry: signals, preemption, vector state

// --- signals (signal.cpp) ------------------------------------------------------------------------
inline constexpr i32 SIGILL_ = 4, SIGTRAP_ = 5, SIGABRT_ = 6, SIGBUS_ = 7, SIGFPE_ = 8, SIGKILL_ = 9, SIGSEGV_ = 11,
                     SIGPIPE_ = 13, SIGALRM_ = 14, SIGCHLD_ = 17, SIGCONT_ = 18, SIGSTOP_ = 19, SIGTSTP_ = 20,
                     SIGTTIN_ = 21, SIGTTOU_ = 22, SIGURG_ = 23, SIGXCPU_ = 24, SIGXFSZ_ = 25, SIGVTALRM_ = 26,
                     SIGPROF_ = 27, SIGWINCH_ = 28, SIGIO_ = 29;
bool send_signal(Thread* to, i32 signal, const SigInfo& info); // to one thread; false: too many are queued
bool send_process_signal(i32 signal, const SigInfo& info);     // to any thread that does not mask it
void broken_pipe();                                            // SIGPIPE to the current thread
void drop_pending(Pending&, u64 which);
void retarget_process_signals();                    // the current thread will not take some that it was woken for
void force_signal(i32 signal, const SigInfo& info); // a fault: not maskable
bool signal_pending(const Thread*);
void deliver_signals(Regs*);
bool interrupted(const Regs*); // by a signal: a system call whose result is not for the program

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
// A walk over the program's buffers.
struct Cursor {
    IoVec* vec; // used up as it goes
    u64 count;
    u64 left;            // bytes
    bool kernel = false; // the buffers are the guest kernel's own
    void advance(u64 bytes);
    void shorten(u64 bytes); // to so many; the vector's lengths, too
    // Move up to `bytes` between the kernel and the program: bytes moved, or -EFAULT when none could be.
    i64 put(const void* from, u64 bytes);
    i64 get(void* to, u64 bytes);
};

struct File;
struct EpollItem;
struct FileOps {
    i64 (*read)(File*, Cursor&, i64 offset); // offset -1: the file's own
    i64 (*write)(File*, Cursor&, i64 offset);
    u32 (*poll)(File*);   // POLL* that hold now
    void (*close)(File*); // the last reference went: frees the object
    const char* name;
};
enum class Kind : u8 { host, socket, pipe, event, timer, epoll, signal, message_queue, own };
struct File {
    const FileOps* ops = nullptr;
    Kind kind = Kind::host;
    u32 refs = 1;
    u32 flags = 0;     // O_* as F_GETFL gives them
    u32 in_events = 0; // grow with every arrival of data and of room: what edge-triggered epoll goes by
    u32 out_events = 0;
    EpollItem* watchers = nullptr;
};
inline bool nonblocking(const File* f) { return (f->flags & O_NONBLOCK_) != 0; }
void event_in(File*);  // data arrived: count it and wake
void event_out(File*); // room appeared
// For what lives on the host, whose arrivals are not seen: whoever took from it wants to hear of the next.
inline void took_in(File* f) { ++f->in_events; }
inline void took_out(File* f) { ++f->out_events; }

struct Descriptor {
    File* file;
    bool cloexec;
};
File* file_of(i32 fd);                            // null: EBADF
i32 install(File*, bool cloexec, i32 lowest = 0); // -EMFILE; does not take the reference on failure
i32 install_or_release(File*, bool cloexec);      // releases it on failure
void ref(File*);
void unref(File*);
void close_all_epoll_items(File*);
i64 close_fd(i32 fd);

struct HostFile : File {
    i32 handle = abi::kNoHandle;
    bool seekable = false;
    u32 mode = 0;
    u64 offset = 0;
    u64 fresh_until = 0;   // until then `stat` is as good as asking the host (a file just opened for reading)
    u64 fresh_changes = 0; // file_changes() then
    u8 stat[144] = {};
    bool fresh() const {
        return !file_mapped && fresh_until != 0 && fresh_changes == file_changes() && now_mono() < fresh_until;
    }
};
HostFile* make_host_file(i32 handle, u32 flags, bool seekable, u32 mode);
// The bytes of the small file that was opened last, for as long as that file is fresh.
struct Content {
    const HostFile* owner;
    u32 bytes;
    u8 data[abi::kContentBytes];
};
extern Content last_content;
// The handle behind a descriptor for a host call, or -1 (EBADF or not a host file).
i32 handle_of(File*);
u32 poll_handle(i32 handle, u32 events); // asks the host now, unless ask_handles() just did
void ask_handles();                      // one call for all that the current thread is interested in
void forget_answers();
void note_answers();                       // the host has answered a wait
void add_interest(i32 handle, u32 events); // of the current thread, before wait_io
void clear_interest();
void collect_interest(File*, u32 events); // adds what a poll on this file depends on

i64 write_kernel(File*, const void* from, u64 bytes); // write_file from the guest kernel's own memory
i64 read_file(File*, Cursor&, i64 offset);
i64 write_file(File*, Cursor&, i64 offset);
u32 poll_file(File*);

void init_files();
void init_cpuid();
void init_time();
void conns_updated(); // the host returned: connections may have changed
// A connection has something for its client, which leaves when the program next waits. The host hears of it before when
// the program goes on computing (sched.cpp, leave()).
void note_unsent();

// When the next armed timer of any kind is due.
u64 next_timer();
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
