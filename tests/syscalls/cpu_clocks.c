// CPU time of threads and of the process, and clocks that are not there.
#include "transcript.h"

#include <pthread.h>

static int64_t ns(clockid_t clock) {
    struct timespec t = {-1, 0};
    if (clock_gettime(clock, &t) != 0) return -errno;
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static volatile int go_on = 1, ready;
static int64_t of_spinner;

static void *spin(void *none) {
    const int64_t begin = ns(CLOCK_THREAD_CPUTIME_ID);
    while (ns(CLOCK_THREAD_CPUTIME_ID) - begin < 200000000) {
    }
    of_spinner = ns(CLOCK_THREAD_CPUTIME_ID);
    return none;
}

static void *wait_idle(void *none) {
    ready = 1;
    while (go_on) sleep_ms(2);
    return none;
}

// As the kernel counts them: a number, inverted, and three bits.
static clockid_t clock_of(unsigned number, unsigned bits) { return (clockid_t)(~number << 3 | bits); }

int main(void) {
    pthread_t a, b;
    clockid_t clock;
    int64_t own = ns(CLOCK_THREAD_CPUTIME_ID), all = ns(CLOCK_PROCESS_CPUTIME_ID);
    pthread_create(&b, NULL, wait_idle, NULL);
    pthread_create(&a, NULL, spin, NULL);
    pthread_join(a, NULL);
    own = ns(CLOCK_THREAD_CPUTIME_ID) - own;
    all = ns(CLOCK_PROCESS_CPUTIME_ID) - all;
    CHECK(own >= 0 && own < 100000000);
    CHECK(all >= 200000000);
    CHECK(of_spinner >= 200000000);
    while (!ready) sched_yield();
    CHECK(pthread_getcpuclockid(b, &clock) == 0);
    int64_t idle = ns(clock);
    CHECK(idle >= 0 && idle < 100000000);
    go_on = 0;
    pthread_join(b, NULL);
    // Linux wakes who joins before the thread has left its tables: the clock may answer a moment longer.
    while (ns(clock) >= 0) sched_yield();
    CHECK(ns(clock) == -EINVAL);
    CHECK(clock_getcpuclockid(getpid(), &clock) == 0 && ns(clock) >= all);
    CHECK(clock_getcpuclockid(0, &clock) == 0 && ns(clock) >= all);
    CHECK(clock_getcpuclockid(0x3fffff, &clock) == ESRCH);
    int64_t before = ns(CLOCK_PROCESS_CPUTIME_ID);
    sleep_ms(100);
    CHECK(ns(CLOCK_PROCESS_CPUTIME_ID) - before < 90000000);
    section("wrong");
    struct timespec t = {0, 1000};
    const clockid_t wrong[] = {clock_of(99999999, 2), clock_of(0x3fffff, 6), -1, -5, clock_of(0, 3), 10, 12, 16, 99, -2147483647};
    for (int i = 0; i < 10; i++) {
        SAY("clock %d", wrong[i]);
        CALL(syscall(SYS_clock_gettime, wrong[i], &t));
        CALL(syscall(SYS_clock_getres, wrong[i], &t));
        CALL(syscall(SYS_clock_nanosleep, wrong[i], 0, &t, NULL));
    }
    const clockid_t kinds[] = {clock_of(0, 0), clock_of(0, 1), clock_of(0, 2), clock_of(0, 4), clock_of(0, 6)};
    for (int i = 0; i < 5; i++) CHECK(ns(kinds[i]) >= 0);
    section("sleeps");
    t = (struct timespec){0, 1000};
    CALL(syscall(SYS_clock_nanosleep, CLOCK_THREAD_CPUTIME_ID, 0, &t, NULL));
    CALL(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC_RAW, 0, &t, NULL));
    CALL(syscall(SYS_clock_nanosleep, CLOCK_REALTIME_COARSE, 0, &t, NULL));
    CALL(syscall(SYS_clock_nanosleep, CLOCK_PROCESS_CPUTIME_ID, TIMER_ABSTIME, &t, NULL));
    CALL(syscall(SYS_clock_nanosleep, clock_of(0, 6), 0, &t, NULL));
    CALL(syscall(SYS_clock_nanosleep, CLOCK_TAI, 0, &t, NULL));
    CALL(syscall(SYS_clock_nanosleep, CLOCK_BOOTTIME, 0, &t, NULL));
    CALL(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, 1L, NULL));
    CALL(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &(struct timespec){0, 1000000000}, NULL));
    CALL(syscall(SYS_clock_settime, CLOCK_MONOTONIC, &t));
    CALL(syscall(SYS_clock_settime, 99, &t));
    CALL(syscall(SYS_clock_settime, CLOCK_REALTIME, 1L));
    CALL(syscall(SYS_clock_settime, CLOCK_PROCESS_CPUTIME_ID, &t));
}
