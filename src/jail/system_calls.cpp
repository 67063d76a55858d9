#include "src/jail/system_calls.hpp"

#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <malloc.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::jail {
namespace {

// By name, as libseccomp knows the numbers. Names unknown to it belong to later kernels and are skipped.
constexpr const char* kUsed[] = {
    // open files
    "read", "write", "readv", "writev", "pread64", "pwrite64", "preadv", "pwritev", "preadv2", "pwritev2", "close",
    "close_range", "lseek", "dup", "dup2", "dup3", "flock", "fstat", "fsync", "fdatasync", "ftruncate", "fallocate",
    "fadvise64", "readahead", "sync_file_range", "syncfs", "sync", "copy_file_range", "sendfile", "splice",
    "getdents64", "fchmod", "fchown", "fstatfs", "fgetxattr", "fsetxattr", "flistxattr", "fremovexattr", "pipe2",
    "memfd_create",
    // paths
    "open", "openat", "openat2", "creat", "stat", "lstat", "newfstatat", "statx", "statfs", "access", "faccessat",
    "faccessat2", "readlink", "readlinkat", "getcwd", "chdir", "fchdir", "umask", "mkdir", "mkdirat", "mknodat",
    "unlink", "unlinkat", "rmdir", "rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat",
    "truncate", "chmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchownat", "utimensat", "futimesat", "getxattr",
    "lgetxattr", "setxattr", "lsetxattr", "listxattr", "llistxattr", "removexattr", "lremovexattr",
    // memory
    "mmap", "munmap", "mremap", "mprotect", "madvise", "msync", "mincore", "brk",
    // waiting
    "poll", "ppoll", "select", "pselect6", "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "eventfd2",
    "timerfd_create", "timerfd_settime", "timerfd_gettime", "signalfd4", "nanosleep", "clock_nanosleep", "futex",
    "futex_waitv", "sched_yield", "restart_syscall", "wait4",
    // sockets; address families are restricted below
    "bind", "listen", "accept", "accept4", "connect", "getsockname", "getpeername", "getsockopt", "setsockopt",
    "sendto", "sendmsg", "sendmmsg", "recvfrom", "recvmsg", "recvmmsg", "shutdown",
    // the process and its threads
    "getpid", "gettid", "getppid", "getuid", "geteuid", "getgid", "getegid", "getgroups", "getrusage", "getrlimit",
    "sysinfo", "uname", "times", "time", "gettimeofday", "clock_gettime", "clock_getres", "getrandom", "getcpu",
    "sched_getparam", "set_robust_list", "get_robust_list", "rseq", "set_tid_address", "arch_prctl", "membarrier",
    "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigtimedwait", "rt_sigsuspend", "rt_sigpending",
    "sigaltstack", "setitimer", "timer_create", "timer_settime", "timer_delete", "exit", "exit_group"};

// Our code makes none of these: the process has been taken over.
// clang-format off
constexpr const char* kNever[] = {
    "execve", "execveat", "fork", "vfork", "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise",
    "kcmp", "kill", "tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open", "pidfd_getfd",
    "pidfd_send_signal", "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter",
    "io_uring_register", "io_setup", "io_submit", "keyctl", "add_key", "request_key", "mount", "umount2",
    "pivot_root", "chroot", "setns", "move_mount", "open_tree", "fsopen", "fsconfig", "fsmount", "fspick",
    "mount_setattr", "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot",
    "swapon", "swapoff", "acct", "settimeofday", "clock_settime", "adjtimex", "clock_adjtime", "sethostname",
    "setdomainname", "iopl", "ioperm", "modify_ldt", "open_by_handle_at", "name_to_handle_at", "fanotify_init",
    "fanotify_mark", "quotactl", "quotactl_fd", "syslog", "vhangup", "personality", "setuid", "setgid", "setreuid",
    "setregid", "setresuid", "setresgid", "setfsuid", "setfsgid", "setgroups", "capset", "landlock_create_ruleset",
    "landlock_add_rule", "landlock_restrict_self", "shmget", "shmat", "shmctl", "semget", "semctl", "msgget",
    "msgctl", "mq_open", "mq_unlink", "nfsservctl", "uselib", "ustat", "lookup_dcookie", "migrate_pages",
    "move_pages", "mbind", "set_mempolicy", "seccomp"};
// clang-format on

// Comparisons of one argument, by its number.
scmp_arg_cmp equals(unsigned argument, scmp_datum_t value) { return {argument, SCMP_CMP_EQ, value, 0}; }
scmp_arg_cmp masked(unsigned argument, scmp_datum_t mask, scmp_datum_t value) {
    return {argument, SCMP_CMP_MASKED_EQ, mask, value};
}

constexpr scmp_datum_t kIoctlType = 0xff00, kSocketIoctls = 0x8900;

std::vector<sock_filter> read_program(int file) {
    struct stat info {};
    if (::fstat(file, &info) != 0)
        return {};
    std::vector<sock_filter> program(static_cast<std::size_t>(info.st_size) / sizeof(sock_filter));
    if (::pread(file, program.data(), program.size() * sizeof(sock_filter), 0) != info.st_size)
        return {};
    return program;
}

struct Closer {
    void operator()(void* filter) const { ::seccomp_release(filter); }
};

class Filter {
public:
    explicit Filter(std::uint32_t otherwise) : filter_(::seccomp_init(otherwise)) { ok_ = filter_ != nullptr; }

    template <class... Comparisons>
    void add(std::uint32_t action, const char* name, Comparisons... comparisons) {
        const int number = ::seccomp_syscall_resolve_name(name);
        if (!ok_ || number == __NR_SCMP_ERROR || number < 0)
            return;
        ok_ = ::seccomp_rule_add(filter_.get(), action, number, sizeof...(comparisons), comparisons...) == 0;
    }
    std::vector<sock_filter> program() {
        // Binary tree by system call number; the kernel caches the result for calls whose arguments are not compared.
        if (!ok_ || ::seccomp_attr_set(filter_.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2) != 0 ||
            ::seccomp_attr_set(filter_.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS) != 0)
            return {};
        const tinykvm::UniqueFd file(::memfd_create("kvmserver-filter", MFD_CLOEXEC));
        if (!file || ::seccomp_export_bpf(filter_.get(), file.get()) != 0)
            return {};
        return read_program(file.get());
    }

private:
    std::unique_ptr<void, Closer> filter_;
    bool ok_ = false;
};

// Calls that can reach another process: by its number, or by signals that a descriptor's events send.
constexpr const char* kUsedAlone[] = {
    "tgkill", "prlimit64", "sched_getaffinity", "sched_setaffinity", "sched_setscheduler", "fcntl"};
constexpr scmp_datum_t kFileCommands[] = {F_DUPFD,      F_GETFD,         F_SETFD,     F_GETFL,     F_SETFL,
                                          F_GETLK,      F_SETLK,         F_SETLKW,    F_OFD_GETLK, F_OFD_SETLK,
                                          F_OFD_SETLKW, F_DUPFD_CLOEXEC, F_ADD_SEALS, F_GET_SEALS, F_GETPIPE_SZ,
                                          F_SETPIPE_SZ, F_GETLEASE};

void add_what_reaches_others(Filter& filter, bool alone) {
    if (alone) {
        for (const char* const name : kUsedAlone)
            filter.add(SCMP_ACT_ALLOW, name);
        filter.add(SCMP_ACT_ALLOW, "ioctl", masked(1, kIoctlType, kSocketIoctls));
        return;
    }
    filter.add(SCMP_ACT_ALLOW, "tgkill", equals(0, static_cast<scmp_datum_t>(::getpid())));
    for (const char* const name : {"prlimit64", "sched_getaffinity", "sched_setaffinity", "sched_setscheduler"})
        filter.add(SCMP_ACT_ALLOW, name, equals(0, 0)); // the calling process
    for (const scmp_datum_t command : kFileCommands)
        filter.add(SCMP_ACT_ALLOW, "fcntl", equals(1, command));
    for (const scmp_datum_t request : {SIOCGIFMTU, SIOCGIFINDEX, SIOCGIFNAME})
        filter.add(SCMP_ACT_ALLOW, "ioctl", equals(1, request));
}

std::vector<sock_filter> of_process(bool alone) {
    Filter filter(SCMP_ACT_ERRNO(ENOSYS));
    for (const char* const name : kUsed)
        filter.add(SCMP_ACT_ALLOW, name);
    add_what_reaches_others(filter, alone);
    for (const char* const name : kNever)
        filter.add(SCMP_ACT_KILL_PROCESS, name);
    // Only threads of this process. clone3 gets ENOSYS: its arguments lie in memory, where a filter cannot see them and
    // they can change. The C library then uses clone.
    filter.add(SCMP_ACT_ALLOW, "clone", masked(0, CLONE_THREAD, CLONE_THREAD));
    filter.add(SCMP_ACT_ALLOW, "unshare", equals(0, CLONE_FS));
    for (const scmp_datum_t option :
         {PR_SET_NAME, PR_GET_NAME, PR_GET_DUMPABLE, PR_SET_PDEATHSIG, 0x53564d41 /* PR_SET_VMA */})
        filter.add(SCMP_ACT_ALLOW, "prctl", equals(0, option));
    for (const scmp_datum_t family : {AF_UNIX, AF_INET, AF_INET6})
        filter.add(SCMP_ACT_ALLOW, "socket", equals(0, family));
    filter.add(SCMP_ACT_ALLOW, "socket", equals(0, AF_NETLINK), equals(2, NETLINK_ROUTE));
    filter.add(SCMP_ACT_ALLOW, "socketpair", equals(0, AF_UNIX));
    // By type: KVM's, and those of open files, including PAGEMAP_SCAN. For terminals only whether one is there, and its
    // size.
    for (const scmp_datum_t type : {0xae00, 0x6600})
        filter.add(SCMP_ACT_ALLOW, "ioctl", masked(1, kIoctlType, type));
    for (const scmp_datum_t request : {0x5401 /* TCGETS */, 0x5413 /* TIOCGWINSZ */, 0x541b /* FIONREAD */,
                                       0x5421 /* FIONBIO */, 0x5450 /* FIONCLEX */, 0x5451 /* FIOCLEX */})
        filter.add(SCMP_ACT_ALLOW, "ioctl", equals(1, request));
    return filter.program();
}

constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

} // namespace

tinykvm::UniqueFd SystemCalls::to_give() {
    const SystemCalls calls(true);
    const std::size_t bytes = calls.program_.size() * sizeof(sock_filter);
    tinykvm::UniqueFd file(::memfd_create("kvmserver-filter", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (bytes == 0 || !file || ::write(file.get(), calls.program_.data(), bytes) != static_cast<ssize_t>(bytes) ||
        ::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0)
        return {};
    return file;
}

SystemCalls SystemCalls::given() {
    // Anything else there, such as what an ordinary user began us with, has no such seals.
    if (const int seals = ::fcntl(kGiven, F_GET_SEALS); seals < 0 || (seals & kSeals) != kSeals)
        return SystemCalls(true);
    const tinykvm::UniqueFd file(kGiven);
    auto program = read_program(file.get());
    return program.empty() ? SystemCalls(true) : SystemCalls(std::move(program));
}

SystemCalls::SystemCalls(bool alone) : program_(of_process(alone)) {
    ::malloc_trim(0); // return half a megabyte of temporary memory
}

bool SystemCalls::restrict() const {
    if (program_.empty()) {
        errno = ENOSYS;
        return false;
    }
    const sock_fprog program{static_cast<unsigned short>(program_.size()), const_cast<sock_filter*>(program_.data())};
    return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

} // namespace kvmserver::jail
