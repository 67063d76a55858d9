// A stream that breaks in the middle of a long write or send. The argument is the port of an echo server on 127.0.0.1.
#include "transcript.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

static char much[64 << 20]; // more than all buffers on the way hold
static volatile sig_atomic_t pipes;

static void count(int unused) {
    (void)unused;
    ++pipes;
}

struct sending {
    int fd, flags;
    ssize_t result;
};

static void *send_much(void *argument) {
    struct sending *s = argument;
    s->result = s->flags < 0 ? write(s->fd, much, sizeof much) : send(s->fd, much, sizeof much, s->flags);
    return NULL;
}

static void say_partial(const struct sending *s) {
    const ssize_t sent = s->result;
    CHECK(sent > 0 && sent < (ssize_t)sizeof much);
    SAY("%d SIGPIPE", (int)pipes);
}

// Ends the sending direction once the other side has seen a byte of it.
static void shut(const char *title, int fd, int other, int flags) {
    section(title);
    pthread_t thread;
    struct sending s = {fd, flags, 0};
    char byte;
    pipes = 0;
    pthread_create(&thread, NULL, send_much, &s);
    CALL(recv(other, &byte, 1, MSG_PEEK));
    CALL(shutdown(fd, SHUT_WR));
    pthread_join(thread, NULL);
    say_partial(&s);
    CALL(send(fd, "x", 1, 0));
    SAY("%d SIGPIPE", (int)pipes);
    CALL(send(fd, "x", 1, MSG_NOSIGNAL));
    SAY("%d SIGPIPE", (int)pipes);
    close(fd);
    if (other != fd) close(other);
}

static void pair(const char *title, int flags) {
    int s[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    shut(title, s[0], s[1], flags);
}

static void outbound(int port) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const int fd = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(connect(fd, (struct sockaddr *)&address, sizeof address));
    shut("an outbound connection", fd, fd, 0);
}

static void pipe_without_reader(void) {
    section("a pipe, which gives the signal at once");
    int p[2];
    char byte;
    pthread_t thread;
    pipes = 0;
    MUST(pipe(p));
    struct sending s = {p[1], -1, 0};
    pthread_create(&thread, NULL, send_much, &s);
    CALL(read(p[0], &byte, 1));
    CALL(close(p[0]));
    pthread_join(thread, NULL);
    say_partial(&s);
    close(p[1]);
}

int main(int argc, char **argv) {
    signal(SIGPIPE, count);
    pair("a pair", 0);
    pair("a pair, and the last byte is urgent", MSG_OOB);
    outbound(argc > 1 ? atoi(argv[1]) : 7);
    pipe_without_reader();
    return 0;
}
