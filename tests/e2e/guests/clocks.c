// clocks PORT SECONDS: tells how much time has passed by each clock since it began, and what of all that it then put off
// for SECONDS has happened. A request waits a fifth of a second before it answers.
#define _GNU_SOURCE
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/timerfd.h>
#include <time.h>

#include "server.h"

static int put_off; // seconds
static const struct {
    clockid_t id;
    const char *name;
} kClocks[] = {{CLOCK_MONOTONIC, "monotonic"}, {CLOCK_BOOTTIME, "boottime"}, {CLOCK_REALTIME, "realtime"}};
static double began[3];

static double seconds(struct timespec t) { return (double)t.tv_sec + (double)t.tv_nsec / 1e9; }
static double now(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return seconds(t);
}
static double asked(clockid_t id) { // the kernel, not the vDSO
    struct timespec t;
    syscall(SYS_clock_gettime, id, &t);
    return seconds(t);
}
static struct timespec later(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    t.tv_sec += put_off;
    return t;
}

static int timers[4];
static const char *const kTimers[] = {"timerfd", "timerfd boottime", "timerfd realtime", "timerfd realtime relative"};
static timer_t posix[2];
static volatile int posix_fired[2];
static void on_timer(union sigval which) { posix_fired[which.sival_int] = 1; }

enum { kThreads = 6 };
static volatile int woke[kThreads];
static const char *const kWaits[kThreads] = {"nanosleep", "sleep boottime", "sleep realtime", "poll", "futex", "futex realtime"};
static void *waits(void *arg) {
    const long which = (long)arg;
    static uint32_t word;
    const struct timespec relative = {put_off, 0}, boot = later(CLOCK_BOOTTIME), real = later(CLOCK_REALTIME);
    switch (which) {
    case 0: nanosleep(&relative, NULL); break;
    case 1: clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &boot, NULL); break;
    case 2: clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &real, NULL); break;
    case 3: poll(NULL, 0, put_off * 1000); break;
    case 4: syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &relative, NULL, 0); break;
    case 5:
        syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE | FUTEX_CLOCK_REALTIME, 0, &real, NULL, FUTEX_BITSET_MATCH_ANY);
        break;
    }
    woke[which] = 1;
    return NULL;
}

static void reply(const char *line, char *out, size_t size) {
    (void)line;
    const double before = now(CLOCK_MONOTONIC);
    poll(NULL, 0, 100);
    const struct timespec tenth = {0, 100000000};
    nanosleep(&tenth, NULL);
    FILE *text = fmemopen(out, size, "w");
    fprintf(text, "waited=%.3f\n", now(CLOCK_MONOTONIC) - before);
    for (int i = 0; i < 3; ++i)
        fprintf(text, "%s=%.3f\n", kClocks[i].name, now(kClocks[i].id) - began[i]);
    for (int i = 0; i < 3; ++i) {
        const double one = now(kClocks[i].id), two = asked(kClocks[i].id), three = now(kClocks[i].id);
        fprintf(text, "%s agrees=%d\n", kClocks[i].name, one <= two && two <= three);
    }
    struct sysinfo info;
    sysinfo(&info);
    fprintf(text, "uptime agrees=%d\n", info.uptime + 1.5 > now(CLOCK_BOOTTIME) && (double)info.uptime <= now(CLOCK_BOOTTIME));
    for (int i = 0; i < 4; ++i) {
        uint64_t times = 0;
        fprintf(text, "%s=%d\n", kTimers[i], read(timers[i], &times, sizeof times) == sizeof times);
    }
    fprintf(text, "timer=%d\ntimer realtime=%d\n", posix_fired[0], posix_fired[1]);
    for (int i = 0; i < kThreads; ++i)
        fprintf(text, "%s=%d\n", kWaits[i], woke[i]);
    fclose(text);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    put_off = atoi(argv[2]);
    for (int i = 0; i < 3; ++i) began[i] = now(kClocks[i].id);
    const clockid_t of_timer[] = {CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_REALTIME, CLOCK_REALTIME};
    for (int i = 0; i < 4; ++i) {
        timers[i] = timerfd_create(of_timer[i], TFD_NONBLOCK);
        const struct itimerspec at = {{0, 0}, i == 2 ? later(CLOCK_REALTIME) : (struct timespec){put_off, 0}};
        timerfd_settime(timers[i], i == 2 ? TFD_TIMER_ABSTIME : 0, &at, NULL);
    }
    for (int i = 0; i < 2; ++i) {
        const clockid_t id = i ? CLOCK_REALTIME : CLOCK_MONOTONIC;
        struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_timer, .sigev_value.sival_int = i};
        timer_create(id, &event, &posix[i]);
        const struct itimerspec at = {{0, 0}, i ? later(id) : (struct timespec){put_off, 0}};
        timer_settime(posix[i], i ? TIMER_ABSTIME : 0, &at, NULL);
    }
    for (long i = 0; i < kThreads; ++i) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, waits, (void *)i) != 0) return 1;
    }
    serve(listen_on(atoi(argv[1])), reply);
}
