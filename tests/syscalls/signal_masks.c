// Masks for the length of a call; signals that interrupt, restart, or go to the thread that takes them.
#include "transcript.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>

static volatile sig_atomic_t usr1, usr2;
static pthread_t took;
static void on_usr1(int s) { (void)s, usr1++, took = pthread_self(); }
static void on_usr2(int s) { (void)s, usr2++; }
static sigset_t none, just_usr1;

static pthread_t main_thread;
static void *kicks(void *arg) {
    sleep_ms(50);
    pthread_kill(main_thread, SIGUSR1);
    if (arg) {
        sleep_ms(50);
        (void)!write(*(int *)arg, "x", 1);
    }
    return NULL;
}
static void *waits(void *arg) {
    (void)arg;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    while (!usr1) sleep_ms(1);
    return NULL;
}
static void *sends_urg(void *arg) {
    (void)arg;
    sleep_ms(30);
    kill(getpid(), SIGURG);
    return NULL;
}

int main(void) {
    main_thread = pthread_self();
    struct sigaction action = {.sa_handler = on_usr1};
    MUST(sigaction(SIGUSR1, &action, NULL));
    action.sa_handler = on_usr2;
    action.sa_flags = SA_RESTART;
    MUST(sigaction(SIGUSR2, &action, NULL));
    sigemptyset(&none);
    sigemptyset(&just_usr1);
    sigaddset(&just_usr1, SIGUSR1);
    MUST(sigprocmask(SIG_BLOCK, &just_usr1, NULL));
    struct timespec zero = {0, 0}, second = {1, 0};
    int event = MUST(eventfd(0, 0)), epoll = MUST(epoll_create1(0));
    struct epoll_event e = {EPOLLIN, {0}};
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, event, &e));
    fd_set set;

    section("pending when the call begins");
    struct pollfd p = {event, POLLIN, 0};
    raise(SIGUSR1);
    CALL(ppoll(&p, 1, &second, &none));
    CHECK(usr1 == 1);
    raise(SIGUSR1);
    CALL(epoll_pwait(epoll, &e, 1, 1000, &none));
    CHECK(usr1 == 2);
    raise(SIGUSR1);
    FD_ZERO(&set);
    CALL(pselect(0, &set, NULL, NULL, &second, &none));
    CHECK(usr1 == 3);
    raise(SIGUSR1);
    CALL(sigsuspend(&none));
    CHECK(usr1 == 4);
    section("ready and pending");
    MUST(write(event, &(uint64_t){1}, 8));
    raise(SIGUSR1);
    CALL(ppoll(&p, 1, &zero, &none));
    CHECK(usr1 == 4);
    CALL(epoll_pwait(epoll, &e, 1, 0, &none));
    CHECK(usr1 == 4);
    sigset_t pending, mask;
    MUST(sigpending(&pending));
    CHECK(sigismember(&pending, SIGUSR1));
    MUST(sigprocmask(SIG_SETMASK, NULL, &mask));
    CHECK(sigismember(&mask, SIGUSR1));
    MUST(read(event, &(uint64_t){0}, 8));
    CALL(ppoll(&p, 1, &zero, &none));
    SAY("usr1 %d", usr1);
    section("from another thread");
    usr1 = 0;
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, kicks, NULL));
    CALL(epoll_pwait(epoll, &e, 1, 5000, &none));
    pthread_join(thread, NULL);
    CHECK(usr1 == 1 && took == main_thread);
    MUST(sigprocmask(SIG_UNBLOCK, &just_usr1, NULL));
    int ends[2];
    MUST(pipe(ends));
    char c;
    MUST(pthread_create(&thread, NULL, kicks, &ends[1]));
    CALL(read(ends[0], &c, 1));
    CALL(read(ends[0], &c, 1));
    pthread_join(thread, NULL);
    action.sa_handler = on_usr1;
    MUST(sigaction(SIGUSR1, &action, NULL)); // SA_RESTART
    MUST(pthread_create(&thread, NULL, kicks, &ends[1]));
    CALL(read(ends[0], &c, 1));
    pthread_join(thread, NULL);
    CHECK(usr1 == 3);
    MUST(pthread_create(&thread, NULL, kicks, &ends[1]));
    p.fd = ends[0];
    CALL(poll(&p, 1, 5000)); // never restarted
    pthread_join(thread, NULL);
    MUST(read(ends[0], &c, 1));
    MUST(pthread_create(&thread, NULL, kicks, NULL));
    struct timespec left = {0, 0}, nap = {0, 300000000};
    CALL(nanosleep(&nap, &left));
    CHECK(left.tv_nsec > 0 && left.tv_nsec < 300000000);
    pthread_join(thread, NULL);
    section("to the thread that takes it");
    usr1 = 0;
    MUST(sigprocmask(SIG_BLOCK, &just_usr1, NULL));
    MUST(pthread_create(&thread, NULL, waits, NULL));
    sleep_ms(20);
    MUST(kill(getpid(), SIGUSR1));
    pthread_join(thread, NULL);
    CHECK(usr1 == 1 && took == thread);
    section("ignored ones do not interrupt");
    MUST(pthread_create(&thread, NULL, sends_urg, NULL));
    struct pollfd nothing = {ends[0], POLLIN, 0};
    CALL(poll(&nothing, 1, 100));
    pthread_join(thread, NULL);
    section("waited for although masked and ignored by default");
    sigset_t urg;
    sigemptyset(&urg);
    sigaddset(&urg, SIGURG);
    MUST(sigprocmask(SIG_BLOCK, &urg, NULL));
    MUST(pthread_create(&thread, NULL, sends_urg, NULL));
    CHECK(sigwaitinfo(&urg, NULL) == SIGURG);
    pthread_join(thread, NULL);
    CALL(pthread_kill(main_thread, 0));
    CALL(kill(getpid(), 0));
    CALL(syscall(SYS_tgkill, getpid(), 999999999, SIGUSR1));
    CALL(syscall(SYS_tgkill, getpid(), -1, SIGUSR1));
    CALL(kill(getpid(), 65));
    return 0;
}
