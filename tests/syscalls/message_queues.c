// POSIX message queues.
#include "transcript.h"

#include <mqueue.h>
#include <pthread.h>
#include <sys/epoll.h>

static char name[64];

static void say(mqd_t q) {
    struct mq_attr attr;
    MUST(mq_getattr(q, &attr));
    SAY("flags %ld, at most %ld of %ld, has %ld", attr.mq_flags, attr.mq_maxmsg, attr.mq_msgsize, attr.mq_curmsgs);
}

// What the other thread received: said by the first, once it has joined it.
static struct { char text[64]; unsigned priority; ssize_t bytes; } late;

static void *receive_late(void *queue) {
    late.bytes = mq_receive(*(mqd_t *)queue, late.text, sizeof late.text, &late.priority);
    return NULL;
}

static volatile int notified, code, value;

static void on_message(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    code = info->si_code, value = info->si_value.sival_int, notified++;
}

static struct timespec soon(long ms) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += ms * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

int main(void) {
    snprintf(name, sizeof name, "/kvmserver-test-%d", (int)getpid());
    char text[64];
    unsigned priority;
    struct mq_attr attr = {.mq_maxmsg = 3, .mq_msgsize = 32};
    CHECK(mq_open(name, O_RDWR) == -1 && errno == ENOENT);
    mqd_t q = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attr);
    CHECK(q >= 0);
    CHECK(mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attr) == -1 && errno == EEXIST);
    say(q);
    section("order");
    CALL(mq_send(q, "low", 3, 1));
    CALL(mq_send(q, "high", 4, 9));
    CALL(mq_send(q, "high too", 8, 9));
    say(q);
    struct timespec until = soon(20);
    CALL(mq_timedsend(q, "x", 1, 0, &until));
    say_ready("full", q);
    for (int i = 0; i < 3; i++) {
        ssize_t n = mq_receive(q, text, sizeof text, &priority);
        SAY("%.*s of %u", (int)n, text, priority);
    }
    say_ready("empty", q);
    until = soon(20);
    CALL(mq_timedreceive(q, text, sizeof text, NULL, &until));
    until = (struct timespec){0, 0};
    CALL(mq_timedreceive(q, text, sizeof text, NULL, &until));
    CALL(mq_send(q, "", 0, 0));
    CALL(mq_receive(q, text, sizeof text, NULL));
    section("threads");
    pthread_t thread;
    pthread_create(&thread, NULL, receive_late, &q);
    sleep_ms(10);
    CALL(mq_send(q, "to a waiting thread", 19, 3));
    pthread_join(thread, NULL);
    SAY("  received %.*s of %u", (int)late.bytes, late.text, late.priority);
    section("not blocking");
    struct mq_attr flags = {.mq_flags = O_NONBLOCK};
    CALL(mq_setattr(q, &flags, &attr));
    CALL(mq_receive(q, text, sizeof text, NULL));
    for (int i = 0; i < 4; i++) CALL(mq_send(q, "n", 1, 0));
    flags.mq_flags = 7;
    CALL(mq_setattr(q, &flags, NULL));
    section("epoll");
    int ep = MUST(epoll_create1(0));
    struct epoll_event event = {EPOLLIN, {.u32 = 1}};
    CALL(epoll_ctl(ep, EPOLL_CTL_ADD, q, &event));
    CALL(epoll_wait(ep, &event, 1, 0));
    for (int i = 0; i < 3; i++) CALL(mq_receive(q, text, sizeof text, NULL));
    CALL(epoll_wait(ep, &event, 1, 0));
    section("notification");
    struct sigaction action = {.sa_sigaction = on_message, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, NULL);
    struct sigevent notify = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 66};
    CALL(mq_notify(q, &notify));
    CALL(mq_notify(q, &notify));
    CALL(mq_send(q, "told", 4, 0));
    CHECK(notified == 1 && code == SI_MESGQ && value == 66);
    CALL(mq_send(q, "not told", 8, 0));
    CHECK(notified == 1);
    notify.sigev_notify = 77;
    CALL(mq_notify(q, &notify));
    CALL(mq_notify(q, NULL));
    section("wrong");
    CALL(mq_send(q, text, 33, 0));
    CALL(mq_send(q, "x", 1, 32768));
    CALL(mq_receive(q, text, 31, NULL));
    CALL(syscall(SYS_mq_timedreceive, q, 1L, 64L, NULL, NULL));
    CALL(syscall(SYS_mq_timedsend, q, 1L, 8L, 0, NULL));
    CALL(syscall(SYS_mq_timedsend, q, text, 8L, 0, 1L));
    until = (struct timespec){0, 1000000000};
    CALL(mq_timedsend(q, "x", 1, 0, &until));
    CALL(mq_send(1, "x", 1, 0));
    CALL(mq_send(99, "x", 1, 0));
    mqd_t reader = mq_open(name, O_RDONLY | O_NONBLOCK), writer = mq_open(name, O_WRONLY | O_NONBLOCK);
    CALL(mq_send(reader, "x", 1, 0));
    CALL(mq_receive(writer, text, sizeof text, NULL));
    CALL(mq_receive(reader, text, sizeof text, NULL) > 0);
    attr.mq_maxmsg = 0;
    CHECK(mq_open("/kvmserver-test-other", O_RDWR | O_CREAT, 0600, &attr) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_mq_open, "a/b", O_RDWR, 0, NULL) == -1 && errno == EACCES);
    CHECK(syscall(SYS_mq_open, 1L, O_RDWR, 0, NULL) == -1 && errno == EFAULT);
    section("unlinked, still there for who has it");
    CALL(mq_unlink(name));
    CALL(mq_unlink(name));
    CALL(mq_send(writer, "after", 5, 31));
    CALL(mq_receive(reader, text, sizeof text, &priority));
    CHECK(mq_open(name, O_RDWR) == -1 && errno == ENOENT);
    CALL(mq_close(reader));
    CALL(mq_close(writer));
    CALL(mq_close(q));
    CALL(mq_close(q));
}
