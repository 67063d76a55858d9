// Resource limits, scheduling, niceness: kept, and refused where they make no sense.
#include "transcript.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/stat.h>

static void say_limit(int which, const char *name) {
    struct rlimit limit;
    CALL(getrlimit(which, &limit));
    SAY("%s: %lld %lld", name, (long long)limit.rlim_cur, (long long)limit.rlim_max);
}

static void resources(void) {
    section("limits");
    struct rlimit limit = {100, 200}, old;
    CALL(setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){4096, 8192}));
    say_limit(RLIMIT_MEMLOCK, "memlock");
    CALL(setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){8192, 4096}));
    CALL(setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}));
    say_limit(RLIMIT_CORE, "core");
    CALL(setrlimit(99, &limit));
    CALL(getrlimit(99, &limit));
    CALL(syscall(SYS_setrlimit, RLIMIT_CPU, 1L));
    CALL(syscall(SYS_getrlimit, RLIMIT_CPU, 1L));
    CALL(prlimit(0, RLIMIT_NOFILE, &(struct rlimit){40, 64}, &old));
    CHECK(old.rlim_cur >= 64);
    CALL(prlimit(getpid(), RLIMIT_NOFILE, NULL, &limit));
    SAY("%d %d", (int)limit.rlim_cur, (int)limit.rlim_max);
    CALL(prlimit(0x3fffff, RLIMIT_NOFILE, NULL, &limit));
    CALL(prlimit(0, 99, NULL, &limit));
    CALL(syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, 1L, NULL));
    CALL(syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, 1L));
    int fds = 0, last = -1;
    for (int fd; (fd = dup(1)) >= 0; fds++) last = fd;
    SAY("%s at %d", strerrorname_np(errno), last);
    for (int fd = last; fd > last - fds; fd--) close(fd);
    CALL(dup2(1, 40));
    CALL(fcntl(1, F_DUPFD, 40));
}

static void caught(int signal) { SAY("  %s", sigabbrev_np(signal)); }

static void file_size(void) {
    section("size of files");
    struct sigaction action = {.sa_handler = caught};
    MUST(sigaction(SIGXFSZ, &action, NULL));
    MUST(setrlimit(RLIMIT_FSIZE, &(struct rlimit){1000, RLIM_INFINITY}));
    int fd = MUST(open("limited", O_CREAT | O_RDWR, 0600));
    char bytes[800] = {0};
    CALL(write(fd, bytes, 800));
    CALL(write(fd, bytes, 800));
    CALL(write(fd, bytes, 800));
    CALL(pwrite(fd, bytes, 10, 995));
    CALL(pwrite(fd, bytes, 10, 1000));
    CALL(pwrite(fd, bytes, 0, 5000));
    CALL(ftruncate(fd, 2000));
    CALL(ftruncate(fd, 900));
    CALL(truncate("limited", 1001));
    struct stat st;
    MUST(fstat(fd, &st));
    SAY("%d bytes", (int)st.st_size);
    MUST(setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}));
    close(fd);
}

static void address_space(void) {
    section("address space");
    MUST(setrlimit(RLIMIT_AS, &(struct rlimit){512 << 20, RLIM_INFINITY}));
    CHECK(mmap(NULL, 1 << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == ENOMEM);
    void *some = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(some != MAP_FAILED);
    CHECK(mremap(some, 64 << 20, 1 << 30, MREMAP_MAYMOVE) == MAP_FAILED && errno == ENOMEM);
    CHECK(mmap(some, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == some);
    CALL(munmap(some, 64 << 20));
    CHECK(sbrk(1 << 30) == (void *)-1);
    MUST(setrlimit(RLIMIT_AS, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}));
    void *more = mmap(NULL, 1 << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(more != MAP_FAILED);
    CALL(munmap(more, 1 << 30));
}

static void processor_time(void) {
    section("processor time");
    struct sigaction action = {.sa_handler = caught};
    MUST(sigaction(SIGXCPU, &action, NULL));
    MUST(setrlimit(RLIMIT_CPU, &(struct rlimit){1, RLIM_INFINITY}));
    sigset_t none, pending;
    sigemptyset(&none);
    volatile long x = 0;
    sigaddset(&none, SIGXCPU);
    MUST(sigprocmask(SIG_BLOCK, &none, NULL));
    do {
        for (int i = 0; i < 1000000; i++) x++;
        MUST(sigpending(&pending));
    } while (!sigismember(&pending, SIGXCPU));
    MUST(setrlimit(RLIMIT_CPU, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}));
    CALL(sigprocmask(SIG_UNBLOCK, &none, NULL));
}

static void locked(void) {
    section("locked memory");
    MUST(setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){8192, 8192}));
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CALL(mlock(page, 4096));
    CALL(mlock(page + 100, 10));
    CALL(mlock(page, 0));
    CALL(munlock(page, 4096));
    CALL(munmap(page + 4096, 4096));
    CALL(munlock(page, 8192));
    CALL(mlock(page, 8192));
    CALL(syscall(SYS_mlock, page, -5000L));
    CALL(syscall(SYS_mlock2, page, 4096, 8));
    CALL(mlockall(0));
    CALL(mlockall(8));
    CALL(munlockall());
    CALL(munmap(page, 4096));
}

static void scheduling(void) {
    section("scheduling");
    struct sched_param param = {0}, wrong = {.sched_priority = -5}, much = {.sched_priority = 1};
    CALL(sched_getscheduler(0));
    CALL(sched_getscheduler(-1));
    CALL(sched_getscheduler(0x3fffff));
    CALL(sched_setscheduler(0, -27367, &param));
    CALL(sched_setscheduler(0, 77, &param));
    CALL(sched_setscheduler(0, SCHED_OTHER, &wrong));
    CALL(sched_setscheduler(0, SCHED_OTHER, &much));
    CALL(sched_setscheduler(0, SCHED_FIFO, &param));
    CALL(sched_setscheduler(0x3fffff, SCHED_OTHER, &param));
    CALL(sched_setscheduler(-1, SCHED_OTHER, &param));
    CALL(syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, NULL));
    CALL(syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, 1L));
    CALL(sched_setscheduler(0, SCHED_BATCH, &param));
    CALL(sched_getscheduler(0));
    CALL(sched_setparam(0, &much));
    CALL(sched_setparam(0, &param));
    CALL(sched_setscheduler(0, SCHED_OTHER, &param));
    CALL(sched_getparam(0, &param));
    CALL(sched_getparam(0, NULL));
    CALL(sched_getparam(-1, &param));
    for (int policy = -1; policy < 7; policy++) {
        CALL(sched_get_priority_max(policy));
        CALL(sched_get_priority_min(policy));
    }
    struct timespec slice;
    CALL(sched_rr_get_interval(0, &slice));
    CALL(sched_rr_get_interval(-1, &slice));
    CALL(sched_rr_get_interval(0x3fffff, &slice));
    CALL(syscall(SYS_sched_rr_get_interval, 0, 1L));
    cpu_set_t set;
    CPU_ZERO(&set);
    CALL(sched_setaffinity(0, sizeof set, &set));
    CPU_SET(0, &set);
    CALL(sched_setaffinity(0x3fffff, sizeof set, &set));
    CALL(sched_getaffinity(0x3fffff, sizeof set, &set));
    CALL(syscall(SYS_sched_setaffinity, 0, 128, 1L));
    MUST(sched_getaffinity(0, sizeof set, &set));
    CALL(sched_setaffinity(0, sizeof set, &set));
    struct { unsigned size, policy; unsigned long flags; int nice; unsigned priority; unsigned long rest[3]; } attr = {0};
    CALL(syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0));
    CHECK(attr.policy == 0 && attr.size == 48);
    CALL(syscall(SYS_sched_getattr, 0, &attr, 8, 0));
    CALL(syscall(SYS_sched_getattr, 0x3fffff, &attr, sizeof attr, 0));
    attr.policy = 99;
    CALL(syscall(SYS_sched_setattr, 0, &attr, 0));
    attr.policy = 0;
    CALL(syscall(SYS_sched_setattr, 0, &attr, 1));
    attr.size = 8;
    CALL(syscall(SYS_sched_setattr, 0, &attr, 0));
}

static void niceness(void) {
    section("niceness");
    const int now = getpriority(PRIO_PROCESS, 0);
    CALL(setpriority(PRIO_PROCESS, 0, 15));
    CALL(getpriority(PRIO_PROCESS, 0));
    CALL(getpriority(PRIO_PROCESS, getpid()));
    CALL(setpriority(PRIO_PROCESS, 0, 99));
    CALL(getpriority(PRIO_PROCESS, 0));
    CALL(setpriority(9, 0, 1));
    CALL(getpriority(9, 0));
    CALL(setpriority(PRIO_PROCESS, 0x3fffff, 1));
    CALL(getpriority(PRIO_PROCESS, 0x3fffff));
    CALL(setpriority(PRIO_PGRP, 0x3fffff, 1));
    CALL(getpriority(PRIO_USER, 54321));
    CHECK(now <= 15);
    CALL(syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 6));
    CALL(syscall(SYS_ioprio_get, 1, 0));
    CALL(syscall(SYS_ioprio_set, 1, 0x3fffff, 2 << 13 | 6));
    CALL(syscall(SYS_ioprio_set, 9, 0, 2 << 13 | 6));
    CALL(syscall(SYS_ioprio_set, 1, 0, 5 << 13));
    CALL(syscall(SYS_ioprio_get, 9, 0));
    CALL(syscall(SYS_ioprio_get, 1, 0x3fffff));
    CALL(personality(0xffffffff));
    CALL(personality(ADDR_NO_RANDOMIZE));
    CALL(personality(0xffffffff));
    CALL(personality(0));
}

int main(void) {
    resources();
    file_size();
    processor_time();
    address_space();
    scheduling();
    niceness();
    locked();
    return 0;
}
