// eventfd: counting, semaphores, overflow, readiness, wake-ups.
#include "transcript.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

static uint64_t value;
static int shared;

static long take(int fd) {
    value = 0;
    long n = read(fd, &value, sizeof value);
    return n == 8 ? (long)value : n;
}

static long add(int fd, uint64_t n) { return write(fd, &n, sizeof n); }

static void *add_later(void *unused) {
    sleep_ms(20);
    MUST(add(shared, 5));
    return unused;
}

static void *take_later(void *unused) {
    sleep_ms(20);
    MUST(take(shared));
    return unused;
}

int main(void) {
    section("counting");
    int fd = CALL(eventfd(3, EFD_NONBLOCK | EFD_CLOEXEC));
    CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR);
    say_ready("at three", fd);
    CALL(take(fd));
    CALL(take(fd));
    say_ready("at zero", fd);
    CALL(add(fd, 2));
    CALL(add(fd, 40));
    CALL(take(fd));
    CALL(add(fd, 0));
    CALL(take(fd));
    CALL(read(fd, &value, 7));
    CALL(write(fd, &value, 7));

    section("overflow");
    CALL(add(fd, ~0ull));
    CALL(add(fd, ~0ull - 1));
    CALL(add(fd, 1));
    say_ready("full", fd);
    CHECK(take(fd) == -2);
    CALL(add(fd, 1));

    section("edge-triggered");
    int epoll = CALL(epoll_create1(0));
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    CALL(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
    CALL(epoll_wait(epoll, &event, 1, 0));
    CALL(epoll_wait(epoll, &event, 1, 0));
    CALL(add(fd, 1));
    CALL(epoll_wait(epoll, &event, 1, 0));
    CALL(epoll_wait(epoll, &event, 1, 0));
    CALL(take(fd));
    CALL(epoll_wait(epoll, &event, 1, 0));
    CALL(close(epoll));
    CALL(close(fd));

    section("semaphore");
    fd = CALL(eventfd(2, EFD_NONBLOCK | EFD_SEMAPHORE));
    CALL(take(fd));
    CALL(take(fd));
    CALL(take(fd));
    CALL(close(fd));
    CALL(eventfd(0, 0x7777));

    section("waiting");
    pthread_t thread;
    shared = CALL(eventfd(0, 0));
    pthread_create(&thread, NULL, add_later, NULL);
    CALL(take(shared));
    pthread_join(thread, NULL);
    CALL(add(shared, ~0ull - 1));
    pthread_create(&thread, NULL, take_later, NULL);
    CALL(add(shared, 9));
    pthread_join(thread, NULL);
    CALL(take(shared));
}
