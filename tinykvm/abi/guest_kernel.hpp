// The contract between host and guest kernel (freestanding; included by both).
//
// The host does not trust these structs: it reads each value once, checks it and only then uses it.
#pragma once
#include <cstdint>

namespace tinykvm::abi {

// Increment it when a layout or meaning in this file changes. A snapshot of another version is refused.
inline constexpr std::uint32_t kVersion = 6;

// I/O ports. Any other port ends the machine.
inline constexpr std::uint16_t kPortHostCall = 0x5a0; // CPL 3: Shared::call is filled in
inline constexpr std::uint16_t kPortWait = 0x5a1;     // CPL 3: every thread is blocked, Shared::wait is filled in
inline constexpr std::uint16_t kPortException = 0xe0; // CPL 0: an ExceptionFrame is on the exception stack

// Numbers of host calls.
enum Host : std::uint32_t {
    // Numbers below 0x1000 are Linux x86-64 system calls, with handles instead of file descriptors.
    // These differ from Linux in their arguments:
    //   openat     (dir handle, path, flags, mode, OpenReply*, content*) -> handle
    //   readlinkat (dir handle, path, buffer, bytes, LinkReply* or 0) -> bytes
    //   preadv     (handle, iovec*, count, offset or -1 for a stream) -> bytes
    //   pwritev    (handle, iovec*, count, offset or -1 for a stream) -> bytes
    //   getdents64 (handle, buffer, bytes, offset, int64* new offset) -> bytes
    //   mmap       (addr, bytes, prot, flags, handle or -1, offset) -> address
    //   socket     (family, type, protocol) -> handle, for outbound and datagram sockets, always non-blocking on the
    //   host
    //   sendmsg    (handle, SocketMessage*) -> bytes; recvmsg (handle, SocketMessage*) -> bytes
    //   memfd_create (name, flags, OpenReply*) -> handle
    kFirstOwn = 0x1000,
    kCloseHandle = 0x1000, // (handle) the last descriptor of a handle was closed
    kExit = 0x1800,        // (status) the program ended
    kKilled,               // (signal, address, code) the program was killed by a signal; see Shared::crash_*
    kUnknownCall,          // (number) the program made a system call that is not implemented: logged once
    kRefused,              // (number, address of the path or 0) fork, vfork or execve: logged once. Returns the child's
                           // process number if a fork is followed (guest/fork.cpp), with kChildServes if the machine is
                           // reset after what it serves now. Otherwise 0: refused
    kListen, // (listener, family, sockaddr*, bytes, backlog, BindFlags) -> 0; the address is replaced by the bound one
    kUnlisten,    // (listener) a bound or listening socket was closed
    kBindAddress, // (listener, family, sockaddr*, bytes, BindFlags) -> 0; picks a port if it is 0; checks permission
    kConnFlush,   // (conn) -> 0; sends what the tx buffer holds, without waiting
    kPoll,        // like a wait, with Shared::wait filled in, but returns at once
    kTrace,       // (number, result, 3 arguments, thread) a finished system call, if it is traced: one line
    kPanic,       // (text) a bug of the guest kernel
    kHandlePath,  // (handle, buffer, bytes) -> bytes of the path that the handle was opened by
    kThreadCount, // not used
    kRoute,       // (request*, bytes, reply*, room, port) -> bytes: the answer of a netlink route socket
    kInterface,   // (request, ifreq* or ifconf*) an ioctl on network interfaces
    kTakeBound,   // (listener) -> handle of the bound socket, which will connect instead of listen; -ENOENT: none
    kDropOwnPages = 0x1820, // (address, bytes) in layout::kFileArea: frees the memory, which then reads as zeros
    kDebugStop, // (DebugStop, signal) a debugger is attached and the current thread stops -> signal to go on with
    // (sockaddr*, bytes, family) -> conn, open: a connection to a program in another machine of the same process;
    // -ENOENT: none listens there. Only if Shared::neighbours is set.
    kConnectNear,
    kHostFunction, // (number, 5 arguments) the program calls a function of the embedder (Numbers::kCallHost)
};
inline constexpr std::int64_t kChildServes = std::int64_t{1} << 32; // see kRefused

// System calls that Linux does not have, for programs in machines of the library (include/tinykvm/guest.h). They are in
// the range that code_sites.hpp takes for a number, so that they need not leave the machine.
enum OwnCalls : std::uint32_t {
    kReady = 960,    // () waits for calls of functions, and does not return. -EBUSY: in a call, or another thread waits
    kCallHost = 961, // (number, 5 arguments) -> what the embedder's function returns; -ENOSYS: there is none
    kReturned = 962, // (RAX, XMM0) made by the guest kernel's own code: a function that was called has returned
};

// Result (as -kOwnPath) of a call on a path that leads to one of the machine's own folders. The canonical path is then
// at Shared::own_path_at. Not an errno of Linux.
inline constexpr std::int64_t kOwnPath = 4000;
inline constexpr std::uint32_t kOwnPathBytes = 4096;

// Bits of Shared::own_folders: /tmp and /dev/shm are the machine's own folders. kOwnFoldersShowHost: ask the host about
// paths in them, because permissions show some of the host's files there, or to log what is missing (verbose).
inline constexpr std::uint32_t kOwnTmp = 1, kOwnShm = 2, kOwnFoldersShowHost = 1u << 31;

// Flags of kListen and kBindAddress.
enum BindFlags : std::uint64_t {
    kBindV6Only = 1,
    kBindReusePort = 2,
    kBindMessages = 4,   // SOCK_SEQPACKET of AF_UNIX: only the machine itself connects to it
    kBindModeShift = 16, // shift of the permissions of a Unix socket's name, 9 bits
};

// Bits of Shared::preempt. The host sets those of a debugger, and clears them again.
enum PreemptBits : std::uint32_t {
    kPreemptYield = 1,    // the time slice is over
    kPreemptStop = 2,     // the next thread that is about to return to the program makes the host call kDebugStop
    kPreemptStep = 4,     // the thread with the number Shared::debug_thread returns to the program with RFLAGS.TF set
    kPreemptAttached = 8, // a debugger is attached: a thread that dies of a signal makes the host call kDebugStop first
};
// Why kDebugStop is made.
enum DebugStop : std::uint64_t { kStopAsked, kStopTrap, kStopSignal };
// Shared::fault_vector: no fault; the host wants a kDebugStop. No vector of the CPU is that large.
inline constexpr std::uint32_t kDebugVector = 0x100;

struct OpenReply {
    std::uint32_t mode;          // st_mode of what was opened
    std::uint32_t seekable;      // 1 when the guest kernel keeps the offset
    std::uint8_t stat[144];      // struct stat at the moment of opening
    std::uint32_t content_bytes; // size of a small read-only file, whose whole content is at `content`; 0: not there
    std::uint32_t reserved;
};
inline constexpr std::uint32_t kContentBytes = 4096;

// Second reply of readlinkat: the longest prefix of the link's target without symbolic links. A program that resolves a
// path link by link (realpath(3)) asks about its components next; the guest kernel then answers without a host call.
struct LinkReply {
    std::uint32_t bytes; // length of `plain`; 0 for none
    char plain[252];     // an absolute path none of whose components is a symbolic link
};

struct SocketMessage {
    std::uint64_t iov; // iovec*
    std::uint64_t iov_count;
    std::uint64_t name;       // sockaddr* or 0
    std::uint32_t name_bytes; // in: room; recvmsg sets the length
    std::uint32_t flags;      // MSG_*; recvmsg sets msg_flags
};

// Handles that every machine starts with.
inline constexpr std::int32_t kHandleStdin = 0;
inline constexpr std::int32_t kHandleStdout = 1;
inline constexpr std::int32_t kHandleStderr = 2;
inline constexpr std::int32_t kHandleCwd = 3;
inline constexpr std::int32_t kNoHandle = -1;

struct HostCall {
    std::uint32_t nr;
    std::uint32_t reserved;
    std::uint64_t arg[6];
    std::int64_t result;
};

// A handle that blocked threads wait for. Events are POLLIN, POLLOUT, POLLERR, POLLHUP.
struct WaitHandle {
    std::int32_t handle;
    std::int16_t events;
    std::int16_t revents;
};
inline constexpr std::uint32_t kMaxWaitHandles = 256;

struct Wait {
    std::uint64_t deadline_ns; // guest monotonic time; ~0 for none
    std::uint32_t listeners;   // not 0: a thread waits for connections
    std::uint32_t handle_count;
    std::uint32_t runnable; // 1 in a kPoll while threads can run
    std::uint32_t threads;  // live threads
    WaitHandle handles[kMaxWaitHandles];
};

// A connection between a client and the program. Buffers are linear: the producer appends at `len`, the consumer takes
// from `off`, and whoever empties a buffer sets both to 0. Host and guest never run at the same time.
enum ConnState : std::uint32_t {
    kConnFree = 0,
    kConnOffered = 1, // set by the host; waits for accept
    kConnOpen = 2,    // accepted
    kConnClosed = 3,  // set by the guest; the host sends the rest, closes the connection and frees the slot
};
inline constexpr std::uint32_t kMaxConns = 512;
inline constexpr std::uint32_t kMaxListeners = 1024; // bound or listening
inline constexpr std::uint32_t kRxBytes = 64 << 10;
inline constexpr std::uint32_t kTxBytes = 64 << 10;
inline constexpr std::uint32_t kAddressBytes = 28; // sockaddr_in6

struct Conn {
    std::uint32_t state;
    std::uint32_t listener;
    std::uint32_t rx_off, rx_len; // bytes [rx_off, rx_len) of the rx buffer are unread
    std::uint32_t tx_off, tx_len; // bytes [tx_off, tx_len) of the tx buffer are unsent
    std::uint8_t rx_eof;          // host: the client will send no more
    std::uint8_t error;           // host: errno (ECONNRESET, EPIPE) of the connection, 0 for none
    std::uint8_t shut_write;      // guest: send a FIN after the tx buffer
    std::uint8_t want_rx;         // guest: a thread waits for data
    std::uint8_t want_tx;         // guest: a thread waits for room
    std::uint8_t reset;           // guest: closed with unread data or SO_LINGER 0, send RST
    std::uint8_t nodelay;         // not used
    std::uint8_t reserved;
    std::uint32_t peer_bytes, local_bytes;
    std::uint8_t peer[kAddressBytes];
    std::uint8_t local[kAddressBytes];
    std::uint32_t serial; // incremented for each connection that uses the slot
};

struct TimePage {
    std::uint64_t tsc_base;
    std::uint64_t mono_base_ns;
    std::uint64_t real_base_ns;
    std::uint64_t boot_base_ns;
    std::uint64_t mult; // ns = ((tsc - tsc_base) * mult) >> 32
};

enum TraceBits : std::uint32_t { kTraceAll = 1, kTraceThreads = 2 };

enum EntryMode : std::uint32_t { kEntryHardware = 0, kEntryPvm = 1 };

// A call of one of the program's functions by the host. A thread of the program has said that it is ready (kReady). The
// function runs on that thread, and when it returns the thread is ready again.
enum FunctionCallState : std::uint32_t {
    kNotReady = 0,      // no thread was ready yet, or a function runs
    kCallable = 1,      // set by the guest: a thread waits for a call, with the results of the last one
    kCallRequested = 2, // set by the host
};
struct FunctionCall {
    std::uint32_t state;
    std::uint32_t enabled;   // set by the host at boot. 0: kReady and kCallHost give -ENOSYS, as on Linux
    std::uint64_t stack_end; // set by the guest: the thread's stack in use begins here
    // Set by the host. The function's stack begins at `stack_top`, at most stack_end.
    std::uint64_t function, stack_top;
    std::uint64_t integers[6];
    double reals[8];
    // Set by the guest: RAX and XMM0 of the function that returned last.
    std::uint64_t result;
    std::uint64_t real_result; // the bits of a double or, in the lower half, of a float
};

// What /proc/self shows and only the guest kernel knows. The guest kernel writes it before it opens a path.
struct SelfState {
    std::uint32_t umask, threads;
    std::uint32_t uid[4], gid[4]; // real, effective, saved, file system
    std::uint32_t group_count, no_new_privileges;
    std::uint32_t groups[32];                                           // the first 32
    std::uint64_t inheritable, permitted, effective, bounding, ambient; // capabilities
    std::uint64_t pending, shared_pending, blocked, ignored, caught;    // signals
    std::uint64_t cpu_ns;
    std::uint32_t leads_group, leads_session; // 0: the group or session is kParentPid's
};
// The process outside that a program is a child of, and whose process group and session it begins in.
inline constexpr std::uint32_t kParentPid = 1;

// At layout::kShared.
struct Shared {
    HostCall call;
    Wait wait;
    // PreemptBits. kPreemptYield: set by the host when it wants to preempt the program but the guest kernel is running.
    std::uint32_t preempt;
    // Incremented by the host when the machine was reset or restored (the identity changes, WIPEONFORK).
    std::uint32_t generation;
    // All connection slots in use are below it: bounds the guest's scans.
    std::uint32_t conn_limit;
    std::uint32_t offered; // number of slots in state kConnOffered
    // A fault of the program, set by the host before it enters the fault entry.
    std::uint64_t fault_address;
    std::uint32_t fault_vector;
    std::uint32_t fault_error;
    // Registers of the program at a fatal signal, for the report.
    std::uint64_t crash_rip, crash_rsp, crash_rflags;
    std::uint64_t crash_regs[15]; // rax rbx rcx rdx rsi rdi rbp r8..r15
    // Boot parameters.
    std::uint64_t boot_entry, boot_stack;
    std::uint32_t entry_mode;
    std::uint32_t xsave_bytes; // size of a thread's vector state
    std::uint64_t xsave_mask;  // components for XSAVE; 0: the CPU has no XSAVE, use FXSAVE
    std::uint32_t pid;
    std::uint32_t trace; // TraceBits: which system calls to report by kTrace
    std::uint32_t uid, gid;
    std::uint32_t max_files;
    std::uint32_t cpus;         // for sched_getaffinity
    std::uint64_t memory_bytes; // for sysinfo
    std::uint64_t brk_start;    // not used
    // Handles without a descriptor in the guest kernel any more: the host closes them at the next exit.
    std::uint32_t close_count;
    std::int32_t closes[16];
    // Set by the host at boot and whenever `generation` changes: 256 random bits for the guest kernel's getrandom.
    std::uint32_t seed[8];
    // RLIMIT_AS and RLIMIT_DATA as the program set them, in bytes; 0 for none. The host's memory calls enforce them.
    std::uint64_t limit_address_space, limit_data;
    // For getrusage. The host updates them at page faults.
    std::uint64_t page_faults, peak_bytes;
    // The machine's own folders in memory (guest/own_files.hpp).
    std::uint32_t own_folders;
    std::uint32_t neighbours;  // not 0: kConnectNear may find a listener
    std::uint64_t own_room;    // bytes that their files may take in addition to what the image holds
    std::uint64_t own_path_at; // set by the guest: address of kOwnPathBytes for a path
    SelfState self;
    std::uint32_t debug_thread; // see kPreemptStep
    std::uint32_t parent;       // part of `self`: the process number of the parent; 0: kParentPid
    FunctionCall function_call;
};
static_assert(sizeof(Shared) <= 4096);

// First bytes of the guest kernel image: addresses of its entries and sections.
struct KernelHeader {
    std::uint64_t magic; // kKernelMagic
    std::uint32_t version;
    std::uint32_t debug_table; // offset of the DebugTable from here; 0: built before there was one
    std::uint64_t boot_entry;  // first instruction of a new machine (CPL 3)
    // LSTAR on PVM. RCX: user RIP, R11: RFLAGS. Its first instruction is MOV [RIP+...], RCX to *entry_rip.
    std::uint64_t syscall_entry;
    std::uint64_t hardware_entry; // LSTAR on hardware; in the supervisor page
    std::uint64_t preempt_entry;  // registers are the program's, its RIP is in *entry_rip
    std::uint64_t fault_entry;    // the same, with Shared::fault_* filled in
    // Where a waiting machine resumes, whatever its registers. RDI is not 0: PKRU is set to 0.
    std::uint64_t wait_resume;
    std::uint64_t user_copy_begin, user_copy_end; // code that may fault on user memory
    std::uint64_t user_copy_fixup;                // where to resume after such a fault
    std::uint64_t exception_stubs;                // 32 stubs in the supervisor page
    std::uint64_t exception_stride;
    std::uint64_t text_begin, text_end; // code at CPL 3: a RIP in here is the guest kernel's
    std::uint64_t supervisor_begin, supervisor_end;
    std::uint64_t data_begin, data_end; // writable
    std::uint64_t entry_rip; // address of the slot for the program's RIP: written by both entries, and by the host for
                             // preemption and faults
    std::uint64_t touch_entry; // touches RSI pages whose addresses are at RDI (bit 0: by a write), then waits
    std::uint64_t stub_entry;  // like syscall_entry, but RFLAGS are the program's; stubs jump here
    std::uint64_t cpuid_entry; // emulates CPUID. RDX: the program's RIP after it
    // As if the program made the call kReady, whose result it would not use. Not in guest kernels of before the
    // library.
    std::uint64_t ready_entry;
};
// Where a debugger finds the program's threads. Whenever the host looks (in a kDebugStop, a kKilled or a wait), the
// registers of every thread are in memory: ThreadRegisters at the top of its kernel stack, and its vector state.
struct DebugTable {
    const void* threads;      // address of an array of pointers to threads, some of which are null
    const void* thread_limit; // address of a u32: number of pointers in use
    const void* current;      // address of the pointer to the current thread
    const void* resume_begin; // code that returns to the program, after RFLAGS are loaded
    const void* resume_end;
    std::uint32_t stack_bytes; // of a kernel stack
    // Offsets in a thread.
    std::uint32_t state, tid, stack, fs_base, gs_base, xsave, name;
};
inline constexpr std::uint8_t kDebugThreadFree = 0, kDebugThreadDead = 3; // values of `state` of no live thread
inline constexpr std::uint32_t kDebugNameBytes = 16;

// The program's registers as the entries of the guest kernel push them, lowest address first.
struct ThreadRegisters {
    std::uint64_t r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi, orig_rax, rip, rflags, rsp;
};

inline constexpr std::uint64_t kKernelMagic = 0x314b'4d56'4b54'5647;

// Head of a page of stubs (tinykvm/memory/code_stubs.hpp), in the place of the first stub. A stub begins with
// instructions of the program; its last byte (of kStubBytes) is their size in bytes. LEA (7 bytes) and JMP (6 bytes)
// follow them.
struct StubPage {
    std::uint64_t entry;       // KernelHeader::stub_entry
    std::uint64_t magic;       // kStubMagic
    std::uint64_t cpuid_entry; // KernelHeader::cpuid_entry
};
inline constexpr std::uint64_t kStubMagic = 0x5342'5553'4d56'4b00;
inline constexpr std::uint32_t kStubBytes = 32;

// What an exception stub leaves on the exception stack, lowest address first.
struct ExceptionFrame {
    std::uint64_t vector;
    std::uint64_t error;
    std::uint64_t rip, cs, rflags, rsp, ss;
};

} // namespace tinykvm::abi
