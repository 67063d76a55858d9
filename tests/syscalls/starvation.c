// A thread that computes, or calls all the time without waiting, must not keep the others, timers or input from going on.
#include "transcript.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/time.h>

static atomic_int stop, progress;

static void *computes(void *arg) {
    (void)arg;
    volatile unsigned long n = 0;
    while (!stop) n++;
    return NULL;
}
static void *calls_the_host(void *arg) {
    (void)arg;
    char bytes[8];
    struct stat st;
    while (!stop) {
        (void)!getrandom(bytes, sizeof bytes, 0);
        stat("/", &st);
    }
    return NULL;
}
static void *asks_the_time(void *arg) {
    (void)arg;
    while (!stop) now_ms();
    return NULL;
}
static void *yields(void *arg) {
    (void)arg;
    while (!stop) sched_yield();
    return NULL;
}
static void *polls(void *arg) {
    (void)arg;
    struct pollfd p = {0, 0, 0};
    while (!stop) poll(&p, 0, 0);
    return NULL;
}
static void *faults(void *arg) {
    (void)arg;
    while (!stop) {
        char *p = malloc(1 << 20);
        for (int i = 0; i < 1 << 20; i += 4096) p[i] = 1;
        free(p);
    }
    return NULL;
}
static void *counts(void *arg) {
    (void)arg;
    for (int i = 0; i < 10; i++) {
        sleep_ms(5);
        progress++;
    }
    return NULL;
}
static volatile sig_atomic_t alarms;
static void on_alarm(int signal) {
    (void)signal;
    alarms++;
}

static void with(const char *name, void *(*busy)(void *)) {
    pthread_t a, b;
    stop = progress = 0;
    alarms = 0;
    int64_t start = now_ms();
    struct itimerval timer = {{0, 20000}, {0, 20000}};
    MUST(setitimer(ITIMER_REAL, &timer, NULL));
    MUST(pthread_create(&a, NULL, busy, NULL));
    MUST(pthread_create(&b, NULL, counts, NULL));
    pthread_join(b, NULL);
    sleep_ms(60);
    int64_t took = now_ms() - start;
    stop = 1;
    pthread_join(a, NULL);
    struct itimerval off = {{0, 0}, {0, 0}};
    MUST(setitimer(ITIMER_REAL, &off, NULL));
    SAY("%s: progress %d, alarms %s, in time %s", name, progress, alarms > 0 ? "yes" : "NO", took < 5000 ? "yes" : "NO");
}

// Threads that hand a turn around.
static int pipes[8][2];
static void *passes(void *arg) {
    int me = (int)(intptr_t)arg;
    char c;
    for (int i = 0; i < 200; i++) {
        if (read(pipes[me][0], &c, 1) != 1) break;
        if (write(pipes[(me + 1) % 8][1], &c, 1) != 1) break;
    }
    return NULL;
}

int main(void) {
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGALRM, &action, NULL));
    with("computes", computes);
    with("calls the host", calls_the_host);
    with("asks the time", asks_the_time);
    with("yields", yields);
    with("polls without waiting", polls);
    with("faults", faults);
    section("alone");
    alarms = 0;
    struct itimerval timer = {{0, 0}, {0, 20000}};
    MUST(setitimer(ITIMER_REAL, &timer, NULL));
    int64_t start = now_ms();
    while (!alarms && now_ms() - start < 5000) {
    }
    CHECK(alarms == 1);
    MUST(setitimer(ITIMER_REAL, &timer, NULL));
    struct pollfd p = {0, 0, 0};
    while (alarms < 2 && now_ms() - start < 5000) poll(&p, 0, 0);
    CHECK(alarms == 2);
    section("a ring of threads");
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) MUST(pipe(pipes[i]));
    for (int i = 0; i < 8; i++) MUST(pthread_create(&threads[i], NULL, passes, (void *)(intptr_t)i));
    (void)!write(pipes[0][1], "x", 1);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    SAY("done");
    return 0;
}
