// poll, ppoll, select, pselect6.
#include "transcript.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>

static int a[2], fds[2];
static char buffer[16];

static void polls(void) {
    section("poll");
    struct pollfd p[5] = {{a[0], POLLIN, 7}, {-1, POLLIN, 7}, {99, POLLIN, 7}, {fds[1], POLLOUT, 7}, {a[0], POLLOUT, 7}};
    CALL(poll(p, 5, -1));
    for (int i = 0; i < 5; i++) SAY("  %s", events_text(p[i].revents));
    CALL(poll(p, 2, 0));
    int64_t start = now_ms();
    CALL(poll(p, 2, 30));
    CALL(poll(NULL, 0, 10));
    CHECK(now_ms() - start >= 39);
    CALL(write(a[1], "x", 1));
    CALL(poll(p, 2, -1));
    SAY("  %s", events_text(p[0].revents));
    CALL(read(a[0], buffer, 1));
    p[0].events = 0;
    CALL(poll(p, 1, 0));
    int file = MUST(open("file", O_RDWR | O_CREAT, 0600));
    p[0] = (struct pollfd){file, POLLIN | POLLOUT, 0};
    CALL(poll(p, 1, -1));
    SAY("  %s", events_text(p[0].revents));
    close(file);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    CALL(poll(p, limit.rlim_cur + 1, 0));
}

static void raw_polls(void) {
    section("ppoll");
    struct pollfd p = {a[0], POLLIN, 0};
    struct timespec t = {0, 20000000}, wrong = {0, 1000000000}, negative = {-1, 0};
    int64_t start = now_ms();
    CALL(syscall(SYS_ppoll, &p, 1L, &t, NULL, 8L));
    CHECK(now_ms() - start >= 19);
    CHECK(t.tv_sec == 0 && t.tv_nsec == 0);
    t = (struct timespec){50, 0};
    CALL(write(a[1], "x", 1));
    CALL(syscall(SYS_ppoll, &p, 1L, &t, NULL, 8L));
    CHECK(t.tv_sec == 49);
    CALL(syscall(SYS_ppoll, &p, 1L, NULL, NULL, 8L));
    CALL(syscall(SYS_ppoll, &p, 1L, &wrong, NULL, 8L));
    CALL(syscall(SYS_ppoll, &p, 1L, &negative, NULL, 8L));
    sigset_t none;
    sigemptyset(&none);
    CALL(syscall(SYS_ppoll, &p, 1L, &t, &none, 4L));
    CALL(read(a[0], buffer, 1));
}

static fd_set set_of(int one, int other) {
    fd_set set;
    FD_ZERO(&set);
    if (one >= 0) FD_SET(one, &set);
    if (other >= 0) FD_SET(other, &set);
    return set;
}

static void selects(void) {
    section("select");
    fd_set r = set_of(a[0], fds[0]), w = set_of(a[0], fds[1]), e = set_of(a[0], -1);
    CALL(write(fds[1], "x", 1));
    CALL(select(64, &r, &w, &e, NULL));
    SAY("  read %d %d, write %d %d, except %d", FD_ISSET(a[0], &r), FD_ISSET(fds[0], &r), FD_ISSET(a[0], &w) != 0,
        FD_ISSET(fds[1], &w) != 0, FD_ISSET(a[0], &e) != 0);
    CALL(read(fds[0], buffer, 1));
    struct timeval t = {0, 30000};
    r = set_of(a[0], -1);
    int64_t start = now_ms();
    CALL(select(a[0] + 1, &r, NULL, NULL, &t));
    CHECK(now_ms() - start >= 29);
    CHECK(t.tv_sec == 0 && t.tv_usec == 0 && !FD_ISSET(a[0], &r));
    t = (struct timeval){0, 10000};
    CALL(select(0, NULL, NULL, NULL, &t));
    r = set_of(-1, 40);
    CALL(select(41, &r, NULL, NULL, &t));
    r = set_of(a[0], 40);
    CALL(select(a[0], &r, NULL, NULL, &t));
    CALL(select(-1, NULL, NULL, NULL, &t));
    t = (struct timeval){0, -1};
    CALL(select(0, NULL, NULL, NULL, &t));
    w = set_of(1, -1);
    CALL(select(2, NULL, &w, NULL, NULL));
}

static volatile int signals;
static void count(int signal) { (void)signal, signals++; }

static void masks(void) {
    section("masks during the wait");
    signal(SIGUSR1, count);
    sigset_t usr1, none, now;
    sigemptyset(&none);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    sigprocmask(SIG_BLOCK, &usr1, NULL);
    struct timespec t = {10, 0};
    raise(SIGUSR1);
    CALL(pselect(0, NULL, NULL, NULL, &t, &none));
    raise(SIGUSR1);
    CALL(ppoll(NULL, 0, &t, &none));
    SAY("%d signals", signals);
    raise(SIGUSR1);
    CALL(ppoll(&(struct pollfd){fds[1], POLLOUT, 0}, 1, &t, &usr1));
    SAY("%d signals", signals);
    sigprocmask(SIG_UNBLOCK, &usr1, &now);
    SAY("%d signals", signals);
    CHECK(sigismember(&now, SIGUSR1));
}

static void *wake(void *unused) {
    sleep_ms(20);
    MUST(write(a[1], "w", 1));
    return unused;
}

static void woken(void) {
    section("woken by another thread");
    pthread_t thread;
    pthread_create(&thread, NULL, wake, NULL);
    CALL(poll(&(struct pollfd){a[0], POLLIN, 0}, 1, 10000));
    pthread_join(thread, NULL);
    CALL(read(a[0], buffer, 10));
    pthread_create(&thread, NULL, wake, NULL);
    fd_set r = set_of(a[0], -1);
    CALL(select(a[0] + 1, &r, NULL, NULL, NULL));
    pthread_join(thread, NULL);
}

int main(void) {
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, a));
    MUST(pipe(fds));
    polls();
    raw_polls();
    selects();
    masks();
    woken();
}
