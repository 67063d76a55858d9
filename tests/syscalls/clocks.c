// Clocks and sleeps, by the vDSO and by system calls.
#include "transcript.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/times.h>

static int64_t ns(clockid_t clock) {
    struct timespec t;
    MUST(clock_gettime(clock, &t));
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t raw_ns(clockid_t clock) {
    struct timespec t;
    MUST(syscall(SYS_clock_gettime, clock, &t));
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void agreement(void) {
    section("clocks agree with each other");
    const clockid_t clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_MONOTONIC_RAW};
    for (int i = 0; i < 4; i++) {
        int backwards = 0;
        int64_t last = ns(clocks[i]);
        for (int n = 0; n < 20000; n++) {
            int64_t now = n & 1 && n < 1000 ? raw_ns(clocks[i]) : ns(clocks[i]);
            backwards += now < last;
            last = now;
        }
        SAY("clock %d went back %d times", clocks[i], backwards);
    }
    struct timeval tv;
    CALL(gettimeofday(&tv, NULL));
    int64_t difference = ns(CLOCK_REALTIME) / 1000 - (tv.tv_sec * 1000000 + tv.tv_usec);
    CHECK(difference >= 0 && difference < 2000000);
    difference = ns(CLOCK_REALTIME) / 1000000000 - time(NULL);
    CHECK(difference >= -1 && difference <= 2);
    CHECK(ns(CLOCK_BOOTTIME) >= ns(CLOCK_MONOTONIC) - 1000000);
    difference = ns(CLOCK_MONOTONIC) - ns(CLOCK_MONOTONIC_COARSE);
    CHECK(difference > -1000000 && difference < 1000000000);
    CHECK(time(NULL) > 1600000000);
    struct stat st;
    close(MUST(open("new", O_RDWR | O_CREAT, 0600)));
    MUST(stat("new", &st));
    CHECK(labs(time(NULL) - st.st_mtime) <= 2);
}

static void sleeps(void) {
    section("sleeps");
    struct timespec t = {0, 30000000}, left = {5, 5};
    int64_t start = ns(CLOCK_MONOTONIC), realtime = ns(CLOCK_REALTIME);
    CALL(nanosleep(&t, &left));
    CHECK(left.tv_sec == 5);
    int64_t slept = ns(CLOCK_MONOTONIC) - start;
    CHECK(slept >= 30000000 && slept < 5000000000);
    CHECK(llabs(ns(CLOCK_REALTIME) - realtime - (ns(CLOCK_MONOTONIC) - start)) < 50000000);
    CALL(clock_nanosleep(CLOCK_REALTIME, 0, &t, NULL));
    MUST(clock_gettime(CLOCK_MONOTONIC, &t));
    CALL(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL));
    t.tv_nsec += 20000000;
    if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
    CALL(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL));
    struct timespec now;
    MUST(clock_gettime(CLOCK_MONOTONIC, &now));
    CHECK(now.tv_sec > t.tv_sec || (now.tv_sec == t.tv_sec && now.tv_nsec >= t.tv_nsec));
    CALL(nanosleep(&(struct timespec){0, 1000000000}, NULL));
    CALL(nanosleep(&(struct timespec){-1, 0}, NULL));
    CALL(nanosleep(&(struct timespec){0, 0}, NULL));
    CALL(clock_nanosleep(99, 0, &t, NULL) == EINVAL);
    start = now_ms();
    for (int i = 0; i < 50; i++) nanosleep(&(struct timespec){0, 1000000}, NULL);
    CHECK(now_ms() - start >= 49);
}

static void processor(void) {
    section("processor time");
    int64_t before = ns(CLOCK_PROCESS_CPUTIME_ID), thread = ns(CLOCK_THREAD_CPUTIME_ID);
    volatile long x = 0;
    int64_t start = now_ms();
    while (now_ms() - start < 50) x++;
    CHECK(ns(CLOCK_PROCESS_CPUTIME_ID) > before);
    CHECK(ns(CLOCK_THREAD_CPUTIME_ID) > thread);
    struct rusage usage;
    CALL(getrusage(RUSAGE_SELF, &usage));
    CALL(getrusage(RUSAGE_THREAD, &usage));
    CHECK(usage.ru_maxrss > 0);
    CALL(getrusage(99, &usage));
    struct tms t;
    CHECK(times(&t) > 0);
    CHECK(clock() > 0);
}

int main(void) {
    agreement();
    sleeps();
    processor();
    section("wrong");
    struct timespec t;
    CALL(syscall(SYS_clock_gettime, 99, &t));
    CALL(clock_gettime(99, &t));
    CALL(clock_getres(CLOCK_MONOTONIC, &t));
    CHECK(t.tv_sec == 0 && t.tv_nsec == 1);
    CALL(clock_getres(CLOCK_REALTIME, NULL));
    CALL(clock_getres(99, &t));
}
