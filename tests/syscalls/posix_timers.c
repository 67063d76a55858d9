// Timers that send signals, and signals that are read.
#include "transcript.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/timerfd.h>

static volatile int calls, value, overrun, code;

static void on_signal(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    calls++;
    code = info->si_code;
    value = info->si_value.sival_int;
    overrun = info->si_overrun;
}

static void handle(int signal) {
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    MUST(sigaction(signal, &action, NULL));
}

static sigset_t only(int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    return set;
}

static timer_t create(clockid_t clock, int notify, int signal, int number) {
    struct sigevent event = {.sigev_notify = notify, .sigev_signo = signal, .sigev_value.sival_int = number};
    timer_t timer;
    MUST(timer_create(clock, &event, &timer));
    return timer;
}

#define AFTER(ms) {(ms) / 1000, (ms) % 1000 * 1000000}

static void spin_until(volatile int *count, int wanted) {
    while (*count < wanted) {
    }
}

static void kinds(void) {
    section("kinds of timers");
    const clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME, CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID};
    handle(SIGUSR1);
    for (int i = 0; i < 5; i++) {
        timer_t timer = create(clocks[i], SIGEV_SIGNAL, SIGUSR1, 40 + i);
        struct itimerspec spec = {{0, 0}, AFTER(20)}, left;
        calls = 0;
        CALL(timer_gettime(timer, &left));
        CHECK(left.it_value.tv_sec == 0 && left.it_value.tv_nsec == 0);
        CALL(timer_settime(timer, 0, &spec, NULL));
        CALL(timer_gettime(timer, &left));
        CHECK(left.it_value.tv_nsec > 0 && left.it_value.tv_nsec <= 20000000);
        spin_until(&calls, 1);
        SAY("value %d code %d overrun %d", value, code == SI_TIMER, overrun);
        CALL(timer_gettime(timer, &left));
        CHECK(left.it_value.tv_sec == 0 && left.it_value.tv_nsec == 0);
        CALL(timer_delete(timer));
        CALL(timer_delete(timer));
    }
}

static void intervals(void) {
    section("intervals");
    timer_t timer = create(CLOCK_MONOTONIC, SIGEV_SIGNAL, SIGRTMIN, 7);
    handle(SIGRTMIN);
    struct itimerspec spec = {AFTER(5), AFTER(5)}, old;
    calls = 0;
    CALL(timer_settime(timer, 0, &spec, &old));
    while (calls < 5) pause();
    CHECK(calls >= 5);
    spec = (struct itimerspec){{0, 0}, {0, 0}};
    CALL(timer_settime(timer, 0, &spec, &old));
    CHECK(old.it_interval.tv_nsec == 5000000 && old.it_value.tv_nsec > 0 && old.it_value.tv_nsec <= 5000000);
    section("masked: what is missed is counted");
    sigset_t set = only(SIGRTMIN);
    MUST(sigprocmask(SIG_BLOCK, &set, NULL));
    calls = 0;
    spec = (struct itimerspec){AFTER(2), AFTER(2)};
    MUST(timer_settime(timer, 0, &spec, NULL));
    sleep_ms(60);
    siginfo_t info;
    CHECK(sigwaitinfo(&set, &info) == SIGRTMIN);
    CHECK(info.si_overrun >= 20 && info.si_overrun < 100000 && info.si_code == SI_TIMER && info.si_value.sival_int == 7);
    CHECK(timer_getoverrun(timer) == info.si_overrun);
    CHECK(sigwaitinfo(&set, &info) == SIGRTMIN);
    CALL(timer_delete(timer));
    struct timespec none = {0, 0};
    while (sigtimedwait(&set, &info, &none) > 0) {
    }
    MUST(sigprocmask(SIG_UNBLOCK, &set, NULL));
    section("at a time, without a signal");
    timer = create(CLOCK_REALTIME, SIGEV_NONE, 0, 0);
    clock_gettime(CLOCK_REALTIME, &spec.it_value);
    spec.it_value.tv_sec -= 5;
    spec.it_interval = (struct timespec){0, 0};
    CALL(timer_settime(timer, TIMER_ABSTIME, &spec, NULL));
    CALL(timer_gettime(timer, &old));
    CHECK(old.it_value.tv_sec == 0 && old.it_value.tv_nsec == 0);
    spec.it_value.tv_sec += 1005;
    CALL(timer_settime(timer, TIMER_ABSTIME, &spec, NULL));
    CALL(timer_gettime(timer, &old));
    CHECK(old.it_value.tv_sec >= 990 && old.it_value.tv_sec <= 1000);
    CALL(timer_delete(timer));
    section("ignored, then not");
    signal(SIGUSR2, SIG_IGN);
    timer = create(CLOCK_MONOTONIC, SIGEV_SIGNAL, SIGUSR2, 9);
    spec = (struct itimerspec){AFTER(3), AFTER(3)};
    MUST(timer_settime(timer, 0, &spec, NULL));
    sleep_ms(20);
    calls = 0;
    handle(SIGUSR2);
    spin_until(&calls, 2);
    SAY("%d", value);
    CALL(timer_delete(timer));
}

static pthread_t helper;
static volatile int in_helper, helper_tid;

static void note_thread(int signal) {
    (void)signal;
    in_helper = pthread_equal(pthread_self(), helper);
    calls++;
}

static void *serve(void *none) {
    helper_tid = (int)syscall(SYS_gettid);
    while (calls < 1) sleep_ms(1);
    return none;
}

static void to_threads(void) {
    section("to a thread");
    calls = 0;
    signal(SIGUSR1, note_thread);
    pthread_create(&helper, NULL, serve, NULL);
    while (!helper_tid) sched_yield();
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    event._sigev_un._tid = helper_tid;
    timer_t timer;
    CALL(timer_create(CLOCK_MONOTONIC, &event, &timer));
    CALL(timer_settime(timer, 0, &(struct itimerspec){{0, 0}, AFTER(5)}, NULL));
    pthread_join(helper, NULL);
    CHECK(in_helper);
    CALL(timer_delete(timer));
    event._sigev_un._tid = 0x3fffff;
    CALL(timer_create(CLOCK_MONOTONIC, &event, &timer));
}

static void in_thread(union sigval number) { value = number.sival_int, calls++; }

static void by_thread(void) {
    section("by a thread of the C library");
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = in_thread, .sigev_value.sival_int = 31};
    timer_t timer;
    calls = 0;
    CALL(timer_create(CLOCK_MONOTONIC, &event, &timer));
    CALL(timer_settime(timer, 0, &(struct itimerspec){{0, 0}, AFTER(5)}, NULL));
    while (calls < 1) sleep_ms(1);
    SAY("%d", value);
    CALL(timer_delete(timer));
}

static void wrong(void) {
    section("wrong");
    struct sigevent event = {.sigev_notify = 99, .sigev_signo = SIGUSR1};
    timer_t timer;
    int id;
    CALL(timer_create(CLOCK_MONOTONIC, &event, &timer));
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = 65;
    CALL(timer_create(CLOCK_MONOTONIC, &event, &timer));
    event.sigev_signo = SIGUSR1;
    CALL(timer_create(99, &event, &timer));
    CALL(syscall(SYS_timer_create, CLOCK_MONOTONIC_RAW, &event, &id));
    CALL(syscall(SYS_timer_create, CLOCK_MONOTONIC_COARSE, &event, &id));
    CALL(syscall(SYS_timer_create, CLOCK_MONOTONIC, 1L, &id));
    CALL(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, 1L));
    MUST(syscall(SYS_timer_create, CLOCK_MONOTONIC, NULL, &id));
    CALL(syscall(SYS_timer_settime, id, 0, NULL, NULL));
    CALL(syscall(SYS_timer_settime, id, 0, 1L, NULL));
    struct itimerspec bad = {{0, 0}, {0, 1000000000}}, none = {{0, 0}, {0, 0}};
    CALL(syscall(SYS_timer_settime, id, 0, &bad, NULL));
    CALL(syscall(SYS_timer_settime, 12345, 0, &none, NULL));
    CALL(syscall(SYS_timer_settime, id, 0, &none, 1L));
    CALL(syscall(SYS_timer_gettime, id, 1L));
    CALL(syscall(SYS_timer_gettime, -1, &none));
    CALL(syscall(SYS_timer_getoverrun, 4711));
    CALL(syscall(SYS_timer_getoverrun, id));
    CALL(syscall(SYS_timer_delete, id));
    CALL(timerfd_create(CLOCK_MONOTONIC_RAW, 0));
    CALL(timerfd_create(CLOCK_TAI, 0));
    CALL(timerfd_create(CLOCK_PROCESS_CPUTIME_ID, 0));
}

static void interval_timers(void) {
    section("setitimer");
    const int which[] = {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF}, signals[] = {SIGALRM, SIGVTALRM, SIGPROF};
    for (int i = 0; i < 3; i++) {
        struct itimerval spec = {{0, 10000}, {0, 10000}}, old;
        calls = 0;
        handle(signals[i]);
        CALL(setitimer(which[i], &spec, NULL));
        spin_until(&calls, 2);
        CHECK(code == SI_KERNEL);
        CALL(getitimer(which[i], &old));
        CHECK(old.it_interval.tv_usec >= 10000 && old.it_value.tv_usec > 0);
        memset(&spec, 0, sizeof spec);
        CALL(setitimer(which[i], &spec, &old));
        CALL(getitimer(which[i], &old));
        CHECK(old.it_value.tv_sec == 0 && old.it_value.tv_usec == 0);
        spec.it_value.tv_usec = 1000000;
        CALL(setitimer(which[i], &spec, NULL));
        spec.it_value.tv_usec = -1;
        CALL(setitimer(which[i], &spec, NULL));
    }
    CALL(syscall(SYS_setitimer, 7, NULL, NULL));
    CALL(syscall(SYS_getitimer, 7, &value));
    CALL(syscall(SYS_getitimer, 0, 1L));
    CALL(alarm(1000));
    CALL(alarm(0));
    CALL(alarm(0));
}

static void reading(void) {
    section("signalfd");
    sigset_t set = only(SIGUSR1), more = only(SIGUSR2), old;
    sigaddset(&more, SIGUSR1);
    MUST(sigprocmask(SIG_BLOCK, &more, &old));
    int fd = CALL(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    struct signalfd_siginfo info[4];
    CALL(read(fd, info, sizeof info));
    CALL(read(fd, info, 10));
    CALL(write(fd, info, sizeof info));
    say_ready("nothing sent", fd);
    CALL(kill(getpid(), SIGUSR2));
    say_ready("another sent", fd);
    CALL(kill(getpid(), SIGUSR1));
    say_ready("one sent", fd);
    CALL(read(fd, info, sizeof info));
    CHECK(info[0].ssi_signo == SIGUSR1 && info[0].ssi_pid == (unsigned)getpid() && info[0].ssi_uid == getuid() && info[0].ssi_code == SI_USER);
    CALL(signalfd(fd, &more, 0));
    CALL(sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 55}));
    CALL(read(fd, info, sizeof info) / (long)sizeof info[0]);
    CHECK(info[0].ssi_signo == SIGUSR1 && info[0].ssi_int == 55 && info[0].ssi_code == SI_QUEUE && info[1].ssi_signo == SIGUSR2);
    section("waited for by epoll, sent by a timer");
    int ep = MUST(epoll_create1(0));
    struct epoll_event event = {EPOLLIN | EPOLLET, {.u32 = 5}};
    CALL(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &event));
    timer_t timer = create(CLOCK_MONOTONIC, SIGEV_SIGNAL, SIGUSR1, 77);
    MUST(timer_settime(timer, 0, &(struct itimerspec){{0, 0}, AFTER(10)}, NULL));
    CALL(epoll_wait(ep, &event, 1, 10000));
    CALL(read(fd, info, sizeof info));
    CHECK(info[0].ssi_code == SI_TIMER && info[0].ssi_int == 77 && info[0].ssi_overrun == 0);
    MUST(timer_settime(timer, 0, &(struct itimerspec){{0, 0}, AFTER(10)}, NULL));
    MUST(fcntl(fd, F_SETFL, 0));
    CALL(read(fd, info, sizeof info));
    CALL(timer_delete(timer));
    CALL(epoll_wait(ep, &event, 1, 0) >= 0);
    section("wrong descriptors");
    CALL(signalfd(99, &set, 0));
    CALL(signalfd(0, &set, 0));
    CALL(signalfd(-1, &set, 77));
    CALL(syscall(SYS_signalfd4, -1, &set, 4L, 0));
    CALL(syscall(SYS_signalfd4, -1, 1L, 8L, 0));
    CALL(close(fd));
    MUST(sigprocmask(SIG_SETMASK, &old, NULL));
}

int main(void) {
    kinds();
    intervals();
    to_threads();
    by_thread();
    wrong();
    interval_timers();
    reading();
}
