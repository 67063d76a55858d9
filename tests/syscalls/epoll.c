// epoll: level- and edge-triggered, one shot, what closes, what wakes.
#include "transcript.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

static int epoll, a[2], b[2];
static char buffer[100000];

static void control(const char *what, int operation, int fd, uint32_t events, uint64_t data) {
    struct epoll_event event = {.events = events, .data.u64 = data};
    long result = epoll_ctl(epoll, operation, fd, &event);
    SAY("%s: %s", what, result == 0 ? "ok" : strerrorname_np(errno));
}

static void wait_for(int max, int timeout) {
    struct epoll_event events[8];
    int n = epoll_wait(epoll, events, max, timeout);
    printf("epoll_wait -> %d", n);
    for (int i = 0; i < n; i++)
        printf(" [%s%s, %lx]", events_text((short)(events[i].events & 0x1f)),
               events[i].events & EPOLLRDHUP ? " RDHUP" : "", (unsigned long)events[i].data.u64);
    SAY("%s", n < 0 ? strerrorname_np(errno) : "");
}

static void start(void) {
    epoll = MUST(epoll_create1(EPOLL_CLOEXEC));
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, a));
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, b));
}

static void stop(void) {
    close(a[0]), close(a[1]), close(b[0]), close(b[1]), close(epoll);
}

static void level(void) {
    section("level-triggered");
    start();
    control("add", EPOLL_CTL_ADD, a[0], EPOLLIN, 0x1234567890abcdef);
    wait_for(8, 0);
    CALL(write(a[1], "ab", 2));
    wait_for(8, -1);
    wait_for(8, -1);
    CALL(read(a[0], buffer, 1));
    wait_for(8, -1);
    CALL(read(a[0], buffer, 1));
    wait_for(8, 0);
    control("modify", EPOLL_CTL_MOD, a[0], EPOLLIN | EPOLLOUT, 2);
    wait_for(8, 0);
    control("modify to nothing", EPOLL_CTL_MOD, a[0], 0, 3);
    CALL(write(a[1], "c", 1));
    wait_for(8, 0);
    control("back", EPOLL_CTL_MOD, a[0], EPOLLIN, 4);
    wait_for(8, 0);
    control("delete", EPOLL_CTL_DEL, a[0], 0, 0);
    wait_for(8, 0);
    control("add two", EPOLL_CTL_ADD, a[0], EPOLLIN, 10);
    control("add two", EPOLL_CTL_ADD, b[0], EPOLLIN, 11);
    CALL(write(b[1], "d", 1));
    wait_for(1, 0);
    wait_for(1, 0);
    stop();
}

static void edge(void) {
    section("edge-triggered");
    start();
    control("add", EPOLL_CTL_ADD, a[0], EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, 1);
    wait_for(8, 0);
    wait_for(8, 0);
    CALL(write(a[1], "one", 3));
    wait_for(8, 0);
    wait_for(8, 0);
    CALL(write(a[1], "two", 3));
    wait_for(8, 0);
    CALL(read(a[0], buffer, 2));
    wait_for(8, 0);
    control("modify", EPOLL_CTL_MOD, a[0], EPOLLIN | EPOLLRDHUP | EPOLLET, 2);
    wait_for(8, 0);
    CALL(read(a[0], buffer, 100));
    CALL(read(a[0], buffer, 100));
    CALL(shutdown(a[1], SHUT_WR));
    wait_for(8, 0);
    wait_for(8, 0);
    CALL(close(a[1]));
    wait_for(8, 0);
    stop();
    start();
    section("edge-triggered, room to write");
    control("add", EPOLL_CTL_ADD, a[0], EPOLLOUT | EPOLLET, 1);
    wait_for(8, 0);
    while (write(a[0], buffer, sizeof buffer) > 0) {
    }
    wait_for(8, 0);
    while (read(a[1], buffer, sizeof buffer) > 0) {
    }
    wait_for(8, 0);
    wait_for(8, 0);
    stop();
}

static void one_shot(void) {
    section("one shot");
    start();
    control("add", EPOLL_CTL_ADD, a[0], EPOLLIN | EPOLLONESHOT, 1);
    CALL(write(a[1], "x", 1));
    wait_for(8, 0);
    wait_for(8, 0);
    CALL(write(a[1], "y", 1));
    wait_for(8, 0);
    control("rearm", EPOLL_CTL_MOD, a[0], EPOLLIN | EPOLLONESHOT, 2);
    wait_for(8, 0);
    wait_for(8, 0);
    CALL(close(a[1]));
    wait_for(8, 0);
    stop();
}

static void endings(void) {
    section("descriptors that close");
    start();
    control("add", EPOLL_CTL_ADD, a[0], EPOLLIN, 1);
    int copy = CALL(dup(a[0]));
    CALL(write(a[1], "x", 1));
    CALL(close(a[0]));
    wait_for(8, 0);
    control("delete by the closed number", EPOLL_CTL_DEL, a[0], 0, 0);
    control("delete by the copy", EPOLL_CTL_DEL, copy, 0, 0);
    CALL(close(copy));
    wait_for(8, 0);
    control("add", EPOLL_CTL_ADD, b[0], EPOLLIN, 2);
    CALL(close(b[1]));
    wait_for(8, 0);
    CALL(close(b[0]));
    wait_for(8, 0);
    int fds[2];
    MUST(pipe(fds));
    control("add a pipe's read end", EPOLL_CTL_ADD, fds[0], EPOLLIN, 3);
    control("add a pipe's write end", EPOLL_CTL_ADD, fds[1], EPOLLIN, 4);
    CALL(close(fds[1]));
    wait_for(8, 0);
    CALL(close(fds[0]));
    stop();
}

static void wrong(void) {
    section("wrong");
    start();
    control("add", EPOLL_CTL_ADD, a[0], EPOLLIN, 1);
    control("add again", EPOLL_CTL_ADD, a[0], EPOLLIN, 1);
    control("modify a stranger", EPOLL_CTL_MOD, b[0], EPOLLIN, 1);
    control("delete a stranger", EPOLL_CTL_DEL, b[0], 0, 0);
    control("add a closed one", EPOLL_CTL_ADD, 99, EPOLLIN, 1);
    control("add itself", EPOLL_CTL_ADD, epoll, EPOLLIN, 1);
    control("no such operation", 77, b[0], EPOLLIN, 1);
    int file = MUST(open("file", O_RDWR | O_CREAT, 0600));
    control("add a file", EPOLL_CTL_ADD, file, EPOLLIN, 1);
    CALL(epoll_ctl(a[0], EPOLL_CTL_ADD, b[0], &(struct epoll_event){.events = EPOLLIN}));
    CALL(epoll_ctl(99, EPOLL_CTL_ADD, b[0], &(struct epoll_event){.events = EPOLLIN}));
    wait_for(0, 0);
    wait_for(-1, 0);
    CALL(epoll_wait(a[0], &(struct epoll_event){0}, 1, 0));
    CALL(epoll_wait(99, &(struct epoll_event){0}, 1, 0));
    CALL(epoll_create(0));
    CALL(epoll_create1(7));
    CALL(read(epoll, buffer, 1));
    close(file);
    stop();
}

static void *wake(void *unused) {
    sleep_ms(20);
    MUST(write(a[1], "w", 1));
    return unused;
}

static void *add_ready(void *unused) {
    sleep_ms(20);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 6};
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, b[0], &event));
    return unused;
}

static volatile int signals;
static void count(int signal) { (void)signal, signals++; }

static void waiting(void) {
    section("waiting");
    start();
    int64_t begin = now_ms();
    wait_for(8, 30);
    CHECK(now_ms() - begin >= 29);
    struct timespec soon = {0, 10000000};
    struct epoll_event event;
    begin = now_ms();
    CALL(epoll_pwait2(epoll, &event, 1, &soon, NULL));
    CHECK(now_ms() - begin >= 9);
    control("add", EPOLL_CTL_ADD, a[0], EPOLLIN, 5);
    pthread_t thread;
    pthread_create(&thread, NULL, wake, NULL);
    wait_for(8, 10000);
    pthread_join(thread, NULL);
    CALL(read(a[0], buffer, 10));
    CALL(write(b[1], "r", 1));
    pthread_create(&thread, NULL, add_ready, NULL);
    wait_for(8, 10000);
    pthread_join(thread, NULL);
    CALL(read(b[0], buffer, 10));
    signal(SIGUSR1, count);
    sigset_t usr1, none;
    sigemptyset(&none);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    sigprocmask(SIG_BLOCK, &usr1, NULL);
    raise(SIGUSR1);
    CALL(epoll_pwait(epoll, &event, 1, 10000, &none));
    SAY("%d signal", signals);
    stop();
}

static void nested(void) {
    section("an epoll in an epoll");
    start();
    int outer = epoll, inner = CALL(epoll_create1(0));
    control("add the inner one", EPOLL_CTL_ADD, inner, EPOLLIN, 7);
    epoll = inner;
    control("add to it", EPOLL_CTL_ADD, a[0], EPOLLIN, 8);
    epoll = outer;
    wait_for(8, 0);
    say_ready("inner", inner);
    CALL(write(a[1], "x", 1));
    wait_for(8, 0);
    say_ready("inner", inner);
    CALL(read(a[0], buffer, 1));
    wait_for(8, 0);
    CALL(close(inner));
    stop();
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    level();
    edge();
    one_shot();
    endings();
    wrong();
    waiting();
    nested();
}
