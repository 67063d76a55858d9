// Bad pointers and bad descriptors in every call that takes one: an error, never a crash.
// Each row is a system call whose pointer argument is one of several bad ones.
#include "transcript.h"

#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/uio.h>

enum { PAGE = 4096, BAD = -1000001, FD, DIR, NEW, PIPE_IN, PIPE_OUT, SOCKET, EVENT, EPOLL, TIMER, PATH, GOOD };

struct row {
    const char *name;
    long number;
    long arguments[6];
};

#define ROW(name, ...) {#name, SYS_##name, {__VA_ARGS__}}

// BAD is the bad pointer, GOOD one to zeroed memory, PATH one to a file's name; the others are descriptors.
static const struct row rows[] = {
    ROW(read, FD, BAD, 10), ROW(write, FD, BAD, 10), ROW(pread64, FD, BAD, 10, 0), ROW(pwrite64, FD, BAD, 10, 0),
    ROW(readv, FD, BAD, 1), ROW(writev, FD, BAD, 1), ROW(preadv, FD, BAD, 1, 0), ROW(pwritev, FD, BAD, 1, 0),
    ROW(read, PIPE_IN, BAD, 10), ROW(write, PIPE_OUT, BAD, 10), ROW(writev, PIPE_OUT, BAD, 1),
    ROW(write, EVENT, BAD, 8), ROW(read, TIMER, BAD, 8),
    ROW(read, SOCKET, BAD, 10), ROW(write, SOCKET, BAD, 10), ROW(sendto, SOCKET, BAD, 10, 0, 0, 0),
    ROW(recvfrom, SOCKET, BAD, 10, 0, 0, 0), ROW(sendmsg, SOCKET, BAD, 0), ROW(recvmsg, SOCKET, BAD, 0),
    ROW(getsockname, SOCKET, GOOD, BAD), ROW(getpeername, SOCKET, GOOD, BAD),
    ROW(getsockopt, SOCKET, SOL_SOCKET, SO_TYPE, GOOD, BAD), ROW(setsockopt, SOCKET, SOL_SOCKET, SO_REUSEADDR, BAD, 4),
    ROW(socketpair, AF_UNIX, SOCK_STREAM, 0, BAD),
    ROW(open, BAD, O_RDONLY, 0), ROW(openat, DIR, BAD, O_RDONLY, 0), ROW(stat, BAD, GOOD), ROW(stat, PATH, BAD),
    ROW(lstat, BAD, GOOD), ROW(lstat, PATH, BAD), ROW(fstat, FD, BAD), ROW(newfstatat, DIR, BAD, GOOD, 0),
    ROW(newfstatat, DIR, PATH, BAD, 0), ROW(statx, DIR, BAD, 0, STATX_BASIC_STATS, GOOD),
    ROW(statx, DIR, PATH, 0, STATX_BASIC_STATS, BAD), ROW(access, BAD, 0), ROW(faccessat, DIR, BAD, 0),
    ROW(readlink, BAD, GOOD, 10), ROW(readlinkat, DIR, BAD, GOOD, 10), ROW(mkdir, BAD, 0700), ROW(mkdirat, DIR, BAD, 0700),
    ROW(rmdir, BAD), ROW(unlink, BAD), ROW(unlinkat, DIR, BAD, 0), ROW(rename, BAD, PATH), ROW(rename, PATH, BAD),
    ROW(link, BAD, PATH), ROW(symlink, BAD, PATH), ROW(chmod, BAD, 0600), ROW(truncate, BAD, 0), ROW(chdir, BAD),
    ROW(getdents64, DIR, BAD, 1000), ROW(statfs, BAD, GOOD), ROW(statfs, PATH, BAD), ROW(fstatfs, FD, BAD),
    ROW(utimensat, DIR, BAD, GOOD, 0), ROW(utimensat, DIR, PATH, BAD, 0), ROW(memfd_create, BAD, 0),
    ROW(sendfile, SOCKET, FD, BAD, 1),
    ROW(pipe, BAD), ROW(pipe2, BAD, 0), ROW(fcntl, FD, F_GETLK, BAD), ROW(ioctl, PIPE_IN, 0x541b, BAD),
    ROW(ioctl, PIPE_IN, 0x5421, BAD), ROW(poll, BAD, 1, 0), ROW(ppoll, BAD, 1, GOOD, 0, 8), ROW(ppoll, GOOD, 1, BAD, 0, 8),
    ROW(ppoll, GOOD, 1, GOOD, BAD, 8), ROW(select, 1, BAD, 0, 0, GOOD), ROW(select, 1, 0, BAD, 0, GOOD),
    ROW(select, 0, 0, 0, 0, BAD), ROW(pselect6, 1, BAD, 0, 0, GOOD, 0), ROW(epoll_ctl, EPOLL, EPOLL_CTL_ADD, EVENT, BAD),
    ROW(epoll_wait, EPOLL, BAD, 1, 0), ROW(epoll_pwait, EPOLL, BAD, 1, 0, 0, 8), ROW(timerfd_settime, TIMER, 0, BAD, 0),
    ROW(timerfd_gettime, TIMER, BAD), ROW(nanosleep, BAD, 0), ROW(clock_nanosleep, CLOCK_MONOTONIC, 0, BAD, 0),
    ROW(clock_gettime, CLOCK_MONOTONIC, BAD), ROW(clock_getres, CLOCK_MONOTONIC, BAD), ROW(gettimeofday, BAD, 0),
    ROW(time, BAD), ROW(times, BAD), ROW(getrusage, 0, BAD), ROW(getrlimit, RLIMIT_NOFILE, BAD),
    ROW(setrlimit, RLIMIT_NOFILE, BAD), ROW(prlimit64, 0, RLIMIT_NOFILE, BAD, 0), ROW(prlimit64, 0, RLIMIT_NOFILE, 0, BAD),
    ROW(uname, BAD), ROW(sysinfo, BAD), ROW(getcwd, BAD, 1000), ROW(getrandom, BAD, 10, 0), ROW(sched_getaffinity, 0, 128, BAD),
    ROW(rt_sigaction, SIGUSR1, BAD, 0, 8), ROW(rt_sigaction, SIGUSR1, 0, BAD, 8), ROW(rt_sigprocmask, SIG_BLOCK, BAD, 0, 8),
    ROW(rt_sigprocmask, SIG_BLOCK, 0, BAD, 8), ROW(rt_sigpending, BAD, 8), ROW(rt_sigtimedwait, BAD, 0, GOOD, 8),
    ROW(rt_sigsuspend, BAD, 8), ROW(sigaltstack, BAD, 0), ROW(sigaltstack, 0, BAD), ROW(setitimer, 0, BAD, 0),
    ROW(getitimer, 0, BAD), ROW(futex, BAD, FUTEX_WAIT, 0, 0, 0, 0), ROW(futex, GOOD, FUTEX_WAIT, 0, BAD, 0, 0),
    ROW(prctl, 16, BAD), ROW(prctl, 15, BAD), ROW(mincore, GOOD, PAGE, BAD),
};  // clang-format: one row each would be 120 lines

static int fds[2], pair[2];
static long descriptors[GOOD - BAD];
static char *good;

static void prepare(void) {
    int fd = MUST(open("file", O_RDWR | O_CREAT, 0600));
    MUST(ftruncate(fd, 100));
    MUST(pipe2(fds, O_NONBLOCK));
    MUST(write(fds[1], "0123456789", 10));
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair));
    MUST(write(pair[1], "0123456789", 10));
    good = (char *)MUST(mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    descriptors[FD - BAD] = fd;
    descriptors[DIR - BAD] = MUST(open(".", O_RDONLY));
    descriptors[PIPE_IN - BAD] = fds[0];
    descriptors[PIPE_OUT - BAD] = fds[1];
    descriptors[SOCKET - BAD] = pair[0];
    descriptors[EVENT - BAD] = MUST(eventfd(1, EFD_NONBLOCK));
    descriptors[EPOLL - BAD] = MUST(epoll_create1(0));
    descriptors[TIMER - BAD] = MUST(timerfd_create(CLOCK_MONOTONIC, 0));
    struct epoll_event event = {.events = EPOLLIN};
    MUST(epoll_ctl((int)descriptors[EPOLL - BAD], EPOLL_CTL_ADD, pair[0], &event));
    MUST(timerfd_settime((int)descriptors[TIMER - BAD], 0, &(struct itimerspec){{0, 1}, {0, 1}}, NULL));
}

static void run(const struct row *row, const char *kind, void *bad) {
    long a[6];
    memset(good, 0, PAGE);
    for (int i = 0; i < 6; i++) {
        a[i] = row->arguments[i];
        if (a[i] == BAD) a[i] = (long)bad;
        else if (a[i] == GOOD) a[i] = (long)good;
        else if (a[i] == PATH) a[i] = (long)"file";
        else if (a[i] > BAD && a[i] < GOOD) a[i] = descriptors[a[i] - BAD];
    }
    errno = 0;
    long result = syscall(row->number, a[0], a[1], a[2], a[3], a[4], a[5]);
    printf(" %s %s", kind, result == -1 ? strerrorname_np(errno) : "ok");
}

static void bad_vectors(void) {
    section("good iovecs with bad buffers");
    char *none = (char *)0x1000;
    struct iovec bad[] = {{good, 3}, {none, 4}, {good, 2}};
    CALL(writev(fds[1], bad + 1, 1));
    CALL(writev(fds[1], bad, 0));
    CALL(readv(pair[0], bad + 1, 2));
    struct msghdr message = {.msg_iov = bad + 1, .msg_iovlen = 2};
    CALL(sendmsg(pair[0], &message, 0));
    bad[1].iov_len = (size_t)-1;
    CALL(writev(fds[1], bad, 3));
    CALL(write((int)descriptors[FD - BAD], none, 0));
    CALL(recv(pair[0], good, 100, 0));
}

static void bad_descriptors(void) {
    section("bad descriptors");
    const int numbers[] = {-1, 99, 1 << 30, -2147483647};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        long first = rows[i].arguments[0];
        if (first <= BAD || first == PATH || first >= GOOD || first == DIR) continue;
        printf("%s:", rows[i].name);
        for (int n = 0; n < 4; n++) {
            long a[6];
            for (int k = 0; k < 6; k++) {
                a[k] = rows[i].arguments[k];
                if (a[k] == BAD || a[k] == GOOD) a[k] = (long)good;
                else if (a[k] == PATH) a[k] = (long)"file";
                else if (a[k] > BAD && a[k] < GOOD) a[k] = descriptors[a[k] - BAD];
            }
            memset(good, 0, PAGE);
            errno = 0;
            long result = syscall(rows[i].number, numbers[n], a[1], a[2], a[3], a[4], a[5]);
            printf(" %s", result == -1 ? strerrorname_np(errno) : "ok");
        }
        putchar('\n');
    }
}

int main(void) {
    prepare();
    char *edge = good + 3 * PAGE;
    MUST(munmap(edge, PAGE));
    char *guarded = (char *)MUST(mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    char *written = (char *)MUST(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    memset(written, 1, PAGE);
    MUST(mprotect(written, PAGE, PROT_NONE));
    section("bad pointers");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        printf("%s(", rows[i].name);
        for (int k = 0; k < 6; k++)
            if (rows[i].arguments[k] == BAD) printf("%d", k);
        printf("):");
        run(&rows[i], "low", (void *)0x1000);
        run(&rows[i], "unmapped", edge);
        run(&rows[i], "PROT_NONE", guarded);
        run(&rows[i], "was written", written);
        run(&rows[i], "kernel", (void *)0xffffffff81000000);
        run(&rows[i], "non-canonical", (void *)0x8000000000001000);
        run(&rows[i], "last", (void *)-1);
        putchar('\n');
    }
    bad_vectors();
    bad_descriptors();
}
