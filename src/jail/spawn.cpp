#include "src/jail/spawn.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>

#include "src/jail/system_calls.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::jail {

using tinykvm::HostError;
using tinykvm::throw_errno;
using tinykvm::UniqueFd;

namespace {

constexpr int kNamespaces = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS;

// Everything that the child needs between clone and exec. It shares our memory and may only make system calls.
struct Start {
    const char* executable;
    char* const* argv;
    char* const* environment;
    const std::vector<std::pair<int, int>>* given;
    int group;                       // -1: none
    sigset_t usual;                  // signals to reset to their default disposition
    std::string user_map, group_map; // of its user namespace; "": none
    int error = 0;
};

// In the child by number: of libc's functions ThreadSanitizer would note, in the memory that the daemon and the child
// share, that the daemon had opened and closed what only the child did.
int open_file(const char* path, int flags) { return static_cast<int>(::syscall(SYS_open, path, flags)); }
int duplicate(int fd, int number) { return static_cast<int>(::syscall(SYS_dup2, fd, number)); }
void close_file(int fd) { (void)::syscall(SYS_close, fd); }

bool write_file(const char* path, const char* text, std::size_t bytes) {
    const int fd = open_file(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    const bool written = ::write(fd, text, bytes) == static_cast<ssize_t>(bytes);
    close_file(fd);
    return written;
}

// user_namespaces(7): a process without rights outside may map its own ids, and groups only after denying setgroups.
bool map_ids(const Start& start) {
    constexpr char kDeny[] = "deny";
    return write_file("/proc/self/setgroups", kDeny, sizeof(kDeny) - 1) &&
           write_file("/proc/self/uid_map", start.user_map.data(), start.user_map.size()) &&
           write_file("/proc/self/gid_map", start.group_map.data(), start.group_map.size());
}

int child(void* argument) {
    Start& start = *static_cast<Start*>(argument);
    const auto fail = [&] {
        start.error = errno;
        ::_exit(127);
    };
    if (start.group >= 0 && ::write(start.group, "0", 1) != 1)
        fail();
    if (!start.user_map.empty() && !map_ids(start))
        fail();
    ::setpgid(0, 0); // Ctrl-C must reach the daemon only, which passes it on
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    for (int signal = 1; signal < SIGRTMIN; ++signal)
        if (::sigismember(&start.usual, signal))
            ::sigaction(signal, &action, nullptr);
    if (::chdir("/") < 0)
        fail();
    const int null = open_file("/dev/null", O_RDONLY);
    if (null < 0 || (null != STDIN_FILENO && duplicate(null, STDIN_FILENO) < 0))
        fail();
    if (null > STDERR_FILENO)
        close_file(null);
    for (const auto& [fd, number] : *start.given)
        if (duplicate(fd, number) < 0)
            fail();
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::execve(start.executable, start.argv, start.environment);
    fail();
    return 127;
}

#ifdef KVMSERVER_SANITIZED
// ThreadSanitizer intercepts clone() and assumes that the child does not share memory.
extern "C" int __clone(int (*)(void*), void*, int, void*, ...); // NOLINT: glibc's name
constexpr auto clone_process = &__clone;
#else
constexpr auto clone_process = &::clone;
#endif

// Like vfork, but on its own stack: the child runs in our memory while we wait until it has called exec or ended.
pid_t clone_child(Start& start, int flags, int& pid_fd) {
    constexpr std::size_t kStackBytes = 64 << 10;
    const auto stack = std::make_unique<std::byte[]>(kStackBytes);
    return clone_process(child, stack.get() + kStackBytes, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | flags | SIGCHLD,
                         &start, &pid_fd);
}

// Moves all descriptors above the target numbers first. dup2 to the same number would leave a descriptor close-on-exec,
// and it could overwrite a descriptor that is yet to be duplicated.
std::vector<UniqueFd> lift(std::vector<std::pair<int, int>>& given) {
    int highest = STDERR_FILENO;
    for (const auto& [fd, number] : given)
        highest = std::max(highest, number);
    std::vector<UniqueFd> copies;
    for (auto& [fd, number] : given) {
        copies.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, highest + 1));
        if (!copies.back())
            throw_errno("dup");
        fd = copies.back().get();
    }
    return copies;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
    std::vector<char*> all;
    all.reserve(texts.size() + 1);
    for (const std::string& text : texts)
        all.push_back(const_cast<char*>(text.c_str())); // execve does not modify them
    all.push_back(nullptr);
    return all;
}

// What the child of fork_process() does before it goes on: 0, or errno.
int begin_child(const std::vector<std::pair<int, int>>& given, int group, const std::string& user_map,
                const std::string& group_map) {
    if (group >= 0 && ::write(group, "0", 1) != 1)
        return errno;
    const auto write_map = [](const char* path, const std::string& text) {
        return write_file(path, text.data(), text.size());
    };
    if (!user_map.empty() &&
        (!write_map("/proc/self/setgroups", "deny") || !write_map("/proc/self/uid_map", user_map) ||
         !write_map("/proc/self/gid_map", group_map)))
        return errno;
    ::setpgid(0, 0); // Ctrl-C must reach the daemon only, which passes it on
    for (const auto& [fd, number] : given)
        if (::dup2(fd, number) < 0)
            return errno;
    return 0;
}

// fork(2), but as a sibling, with more flags and a descriptor of the process.
pid_t fork_sibling(int flags, int& pid_fd) {
    // As fork() does: where the C library keeps the number of the main thread.
    constexpr int kGetTidAddress = 40; // PR_GET_TID_ADDRESS, which some kernels lack
    int* tid = nullptr;
    if (::prctl(kGetTidAddress, &tid) == 0 && tid)
        flags |= CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
    return static_cast<pid_t>(
        ::syscall(SYS_clone, CLONE_PARENT | CLONE_PIDFD | flags | SIGCHLD, nullptr, &pid_fd, tid, nullptr));
}

} // namespace

Forked fork_process(const std::vector<std::pair<int, int>>& given, int group, Mode mode) {
    auto lifted = given;
    const auto copies = lift(lifted);
    const bool maps_user = mode != Mode::off && ::geteuid() != 0;
    const std::string user_map = maps_user ? fmt::format("0 {} 1", ::geteuid()) : "";
    const std::string group_map = maps_user ? fmt::format("0 {} 1", ::getegid()) : "";
    const auto attempt = [&](int flags) {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) < 0)
            throw_errno("pipe");
        const UniqueFd from_child(ends[0]);
        UniqueFd to_parent(ends[1]);
        Forked forked;
        int pid_fd = -1;
        forked.process.pid = fork_sibling(flags, pid_fd);
        if (forked.process.pid == 0) {
            forked.error = begin_child(lifted, group, (flags & CLONE_NEWUSER) ? user_map : "", group_map);
            if (forked.error == 0)
                return forked;
            (void)!::write(to_parent.get(), &forked.error, sizeof(forked.error));
            ::_exit(127);
        }
        if (forked.process.pid < 0) {
            forked.error = errno;
            return forked;
        }
        forked.process.pid_fd.reset(pid_fd);
        to_parent.reset();
        // The end of the file, if all went well.
        if (::read(from_child.get(), &forked.error, sizeof(forked.error)) != sizeof(forked.error))
            forked.error = 0;
        return forked;
    };
    Forked forked;
    if (mode != Mode::off)
        forked = attempt(kNamespaces | (maps_user ? CLONE_NEWUSER : 0));
    if (forked.process.pid < 0)
        forked = attempt(0);
    return forked;
}

Spawned spawn(const Program& program, Mode mode) {
    auto given = program.given;
    if (mode != Mode::off) {
        static const UniqueFd filter = SystemCalls::to_give();
        if (filter)
            given.emplace_back(filter.get(), SystemCalls::kGiven);
    }
    const auto copies = lift(given);
    const auto argv = pointers(program.words), environment = pointers(program.environment);
    Start start{program.executable.c_str(), argv.data(), environment.data(), &given, program.group, {}, {}, {}};
    sigemptyset(&start.usual);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGUSR2})
        sigaddset(&start.usual, signal);
    // No signal handler of ours may run in the child while it shares our memory.
    sigset_t all, before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    const auto attempt = [&](int flags) {
        Spawned spawned;
        int pid_fd = -1;
        start.error = 0;
        spawned.pid = clone_child(start, flags, pid_fd);
        if (spawned.pid < 0) {
            start.error = errno;
            return spawned;
        }
        spawned.pid_fd.reset(pid_fd);
        if (start.error != 0) {
            siginfo_t info{};
            ::waitid(P_PIDFD, static_cast<id_t>(pid_fd), &info, WEXITED);
        }
        return spawned;
    };
    Spawned spawned;
    if (mode != Mode::off && program.own_namespaces) {
        if (::geteuid() != 0) {
            start.user_map = fmt::format("0 {} 1", ::geteuid());
            start.group_map = fmt::format("0 {} 1", ::getegid());
        }
        spawned = attempt(kNamespaces | (start.user_map.empty() ? 0 : CLONE_NEWUSER));
        start.user_map.clear();
    }
    if (spawned.pid < 0 || start.error != 0) // fall back to an ordinary process, which reports the missing walls
        spawned = attempt(0);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (start.error != 0)
        throw HostError(start.error, "start " + program.executable);
    return spawned;
}

bool in_own_namespaces() { return ::getpid() == 1; }

} // namespace kvmserver::jail
