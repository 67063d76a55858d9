// timerfd: one shot, periodic, absolute, disarmed.
#include "transcript.h"

#include <sys/timerfd.h>

static int64_t started;

static struct itimerspec in_ms(long first, long then) {
    return (struct itimerspec){.it_value = {first / 1000, first % 1000 * 1000000},
                               .it_interval = {then / 1000, then % 1000 * 1000000}};
}

static long take(int fd) {
    uint64_t value = 0;
    long n = read(fd, &value, sizeof value);
    return n == 8 ? (long)value : n;
}

static void arm(int fd, long first, long then) {
    struct itimerspec t = in_ms(first, then);
    started = now_ms();
    MUST(timerfd_settime(fd, 0, &t, NULL));
}

int main(void) {
    struct itimerspec t;
    section("one shot");
    int fd = CALL(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    CALL(take(fd));
    CALL(timerfd_gettime(fd, &t));
    CHECK(t.it_value.tv_sec == 0 && t.it_value.tv_nsec == 0);
    arm(fd, 30, 0);
    CALL(take(fd));
    CALL(timerfd_gettime(fd, &t));
    CHECK(t.it_value.tv_sec == 0 && t.it_value.tv_nsec <= 30000000 && t.it_interval.tv_nsec == 0);
    CALL(poll(&(struct pollfd){fd, POLLIN, 0}, 1, 10000));
    CHECK(now_ms() - started >= 29);
    say_ready("expired", fd);
    CALL(take(fd));
    CALL(take(fd));
    CALL(close(fd));

    section("periodic");
    fd = CALL(timerfd_create(CLOCK_REALTIME, 0));
    arm(fd, 5, 5);
    long count = 0;
    while (count < 5) count += take(fd);
    CHECK(now_ms() - started >= 24);
    sleep_ms(50);
    CHECK(take(fd) >= 9);
    t = in_ms(0, 0);
    struct itimerspec old;
    CALL(timerfd_settime(fd, 0, &t, &old));
    CHECK(old.it_interval.tv_nsec == 5000000 && old.it_value.tv_nsec <= 5000000);
    CALL(poll(&(struct pollfd){fd, POLLIN, 0}, 1, 20));

    section("absolute");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    t = (struct itimerspec){.it_value = {now.tv_sec - 100, 0}};
    CALL(timerfd_settime(fd, TFD_TIMER_ABSTIME, &t, NULL));
    CALL(take(fd));
    t = (struct itimerspec){.it_value = {now.tv_sec + 100, 0}};
    CALL(timerfd_settime(fd, TFD_TIMER_ABSTIME, &t, NULL));
    CALL(timerfd_gettime(fd, &t));
    CHECK(t.it_value.tv_sec >= 90 && t.it_value.tv_sec <= 100);
    say_ready("not expired", fd);

    section("wrong");
    uint32_t small;
    CALL(read(fd, &small, sizeof small));
    CALL(write(fd, &t, sizeof t));
    CALL(timerfd_create(99, 0));
    CALL(timerfd_create(CLOCK_MONOTONIC, 0x77));
    CALL(timerfd_settime(fd, 0x77, &t, NULL));
    t.it_value.tv_nsec = 1000000000;
    CALL(timerfd_settime(fd, 0, &t, NULL));
    CALL(timerfd_settime(1, 0, &old, NULL));
    CALL(timerfd_gettime(99, &t));
}
