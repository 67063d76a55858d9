// Pairs of Unix sockets, as streams: flags, options, endings.
#include "transcript.h"

#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>

static int s[2];
static char b[300000];

static void pair(int type) {
    MUST(socketpair(AF_UNIX, type, 0, s));
    memset(b, 0, 100);
}

static void stop(void) { close(s[0]), close(s[1]); }

static void stream(void) {
    section("stream");
    pair(SOCK_STREAM | SOCK_CLOEXEC);
    CHECK(fcntl(s[0], F_GETFD) == FD_CLOEXEC && fcntl(s[1], F_GETFL) == O_RDWR);
    CALL(send(s[0], "hello", 5, 0));
    CALL(write(s[0], " world", 6));
    int waiting = 0;
    CALL(ioctl(s[1], FIONREAD, &waiting));
    SAY("%d bytes wait", waiting);
    CALL(recv(s[1], b, 5, 0));
    CALL(read(s[1], b + 5, 100));
    SAY("'%s'", b);
    CALL(recv(s[1], b, 1, MSG_DONTWAIT));
    CALL(send(s[1], "back", 4, 0));
    CALL(recv(s[0], b, 100, 0));
    struct iovec out[] = {{"ab", 2}, {"cdef", 4}}, in[] = {{b, 1}, {b + 50, 20}};
    struct msghdr message = {.msg_iov = out, .msg_iovlen = 2}, got = {.msg_iov = in, .msg_iovlen = 2};
    CALL(sendmsg(s[0], &message, 0));
    CALL(recvmsg(s[1], &got, 0));
    SAY("'%.1s' '%.5s', flags %x", b, b + 50, got.msg_flags);
    CALL(lseek(s[0], 0, SEEK_SET));
    CALL(pwrite(s[0], "x", 1, 0));
    struct stat st;
    CALL(fstat(s[0], &st));
    CHECK(S_ISSOCK(st.st_mode));
    say_ready("idle", s[0]);
    stop();
}

static volatile int pipes;
static void count(int signal) { (void)signal, pipes++; }

static void endings(void) {
    section("endings");
    signal(SIGPIPE, count);
    pair(SOCK_STREAM);
    CALL(write(s[0], "rest", 4));
    CALL(shutdown(s[0], SHUT_WR));
    say_ready("the one that was shut", s[0]);
    say_ready("the other", s[1]);
    CALL(write(s[0], "x", 1));
    CALL(send(s[0], "x", 1, MSG_NOSIGNAL));
    SAY("%d SIGPIPE", pipes);
    CALL(read(s[1], b, 100));
    CALL(read(s[1], b, 100));
    CALL(write(s[1], "answer", 6));
    CALL(close(s[1]));
    say_ready("after the other closed", s[0]);
    CALL(read(s[0], b, 100));
    CALL(read(s[0], b, 100));
    stop();
    pair(SOCK_STREAM);
    CALL(write(s[0], "unread", 6));
    CALL(close(s[1]));
    CALL(read(s[0], b, 100));
    CALL(write(s[0], "x", 1));
    stop();
    pair(SOCK_STREAM);
    CALL(shutdown(s[0], SHUT_RD));
    CALL(read(s[0], b, 100));
    CALL(shutdown(s[0], 99));
    CALL(shutdown(1, SHUT_RD));
    stop();
    signal(SIGPIPE, SIG_IGN);
}

static long option(int fd, int name) {
    int value = -99;
    socklen_t length = sizeof value;
    return getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 && length == sizeof value ? value : -1;
}

static void options(void) {
    section("options");
    pair(SOCK_STREAM);
    CALL(option(s[0], SO_TYPE) == SOCK_STREAM);
    CALL(option(s[0], SO_DOMAIN) == AF_UNIX);
    CALL(option(s[0], SO_ERROR));
    CALL(option(s[0], SO_ACCEPTCONN));
    CHECK(option(s[0], SO_SNDBUF) > 1000);
    CALL(setsockopt(s[0], SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)));
    CALL(setsockopt(s[0], SOL_SOCKET, SO_REUSEADDR, &(char){1}, 1));
    CALL(option(1, SO_TYPE));
    CALL(option(99, SO_TYPE));
    struct timeval t = {0, 100000};  // counted in ticks, of which a busy Linux is late: it may end early by some
    CALL(setsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t));
    int64_t start = now_ms();
    CALL(recv(s[0], b, 1, 0));
    CHECK(now_ms() - start >= 50);
    struct sockaddr_un address;
    socklen_t length = sizeof address;
    CALL(getsockname(s[0], (struct sockaddr *)&address, &length));
    SAY("family unix %d, %d bytes", address.sun_family == AF_UNIX, (int)length);
    length = sizeof address;
    CALL(getpeername(s[0], (struct sockaddr *)&address, &length));
    CALL(getsockname(1, (struct sockaddr *)&address, &length));
    CALL(socketpair(AF_INET, SOCK_STREAM, 0, s) == 0);
    CALL(socketpair(AF_UNIX, 77, 0, s) == 0);
    stop();
}

static void *drain(void *unused) {
    size_t total = 0;
    static char part[7000];
    for (ssize_t n; (n = read(s[1], part, sizeof part)) > 0;) total += (size_t)n;
    return (void *)(total == 3 * sizeof b ? unused : (void *)total);
}

static void much(void) {
    section("more than fits");
    pair(SOCK_STREAM);
    pthread_t thread;
    void *wrong;
    pthread_create(&thread, NULL, drain, NULL);
    CALL(send(s[0], b, sizeof b, 0));
    CALL(write(s[0], b, sizeof b));
    CALL(send(s[0], b, sizeof b, 0));
    CALL(shutdown(s[0], SHUT_WR));
    pthread_join(thread, &wrong);
    CHECK(wrong == NULL);
    CALL(recv(s[0], b, 1, MSG_DONTWAIT));
    stop();
    pair(SOCK_STREAM);
    CALL(write(s[1], "abc", 3));
    CALL(write(s[1], "def", 3));
    CALL(recv(s[0], b, 6, MSG_WAITALL));
    stop();
}

int main(void) {
    stream();
    endings();
    options();
    much();
}
