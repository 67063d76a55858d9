// Connections of a program to where it listens itself, over TCP.
#include "transcript.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#ifndef SIOCATMARK
#define SIOCATMARK 0x8905
#endif

static char b[1 << 20];
static int port;

static int listener(int family, int only) {
    int l = (int)MUST(socket(family, SOCK_STREAM, 0));
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    if (family == AF_INET6) MUST(setsockopt(l, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only));
    MUST(family == AF_INET ? bind(l, (void *)&a, sizeof a) : bind(l, (void *)&six, sizeof six));
    MUST(listen(l, 4));
    struct sockaddr_storage s;
    socklen_t n = sizeof s;
    MUST(getsockname(l, (void *)&s, &n));
    port = ntohs(((struct sockaddr_in *)&s)->sin_port);
    return l;
}

static int dial(int flags) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int c = (int)MUST(socket(AF_INET, SOCK_STREAM | flags, 0));
    CALL(connect(c, (void *)&a, sizeof a));
    return c;
}

static const char *text(struct sockaddr_storage *s, int with_port) {
    static char out[160];
    char ip[64];
    int p = ntohs(((struct sockaddr_in *)s)->sin_port);
    inet_ntop(s->ss_family, s->ss_family == AF_INET ? (void *)&((struct sockaddr_in *)s)->sin_addr : (void *)&((struct sockaddr_in6 *)s)->sin6_addr, ip, 64);
    snprintf(out, sizeof out, "%s %s", ip, !with_port ? "" : p == port ? "at the listener's port" : p ? "at another port" : "at no port");
    return out;
}

static void names(const char *who, int s) {
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t n = sizeof own, m = sizeof peer;
    CALL(getsockname(s, (void *)&own, &n));
    SAY("%s is %s, %d bytes", who, text(&own, 1), n);
    CALL(getpeername(s, (void *)&peer, &m));
    SAY("its peer is %s, %d bytes", text(&peer, 1), m);
}

// On a slow host what was written may take a moment to arrive.
static void readable(int s) {
    struct pollfd p = {s, POLLIN, 0};
    CHECK(poll(&p, 1, 5000) == 1);
}

static void one(int family) {
    section(family == AF_INET ? "IPv4" : "IPv4 to IPv6");
    int l = listener(family, 0), c = dial(0);
    say_ready("the listener", l);
    struct sockaddr_storage peer = {0};
    socklen_t n = sizeof peer;
    int s = (int)CALL(accept4(l, (void *)&peer, &n, SOCK_CLOEXEC | SOCK_NONBLOCK));
    CHECK(fcntl(s, F_GETFD) == FD_CLOEXEC && (fcntl(s, F_GETFL) & O_NONBLOCK));
    SAY("accepted from %s", text(&peer, 1));
    names("the client", c);
    names("the server", s);
    CALL(read(s, b, 10));
    CALL(write(c, "hello", 5));
    readable(s);
    int waiting = 0;
    CALL(ioctl(s, FIONREAD, &waiting));
    SAY("%d wait", waiting);
    CALL(read(s, b, 10));
    CALL(write(s, "to you", 6));
    CALL(shutdown(s, SHUT_WR));
    CALL(read(c, b, 100));
    CALL(read(c, b, 100));
    CALL(write(c, "still", 5));
    readable(s);
    CALL(read(s, b, 100));
    CALL(close(c));
    readable(s);
    CALL(read(s, b, 100));
    struct sockaddr_storage again = {.ss_family = AF_INET};
    CALL(connect(s, (void *)&again, 16));
    close(s), close(l);
}

static void without_waiting(void) {
    section("without waiting");
    int l = listener(AF_INET, 0), c = dial(SOCK_NONBLOCK), error = -1;
    struct pollfd p = {c, POLLOUT, 0};
    CALL(poll(&p, 1, 5000));
    SAY("%s", events_text(p.revents));
    socklen_t n = sizeof error;
    CALL(getsockopt(c, SOL_SOCKET, SO_ERROR, &error, &n));
    SAY("error %d", error);
    int s = (int)CALL(accept(l, NULL, NULL)) >= 0;
    (void)s;
    CALL(fcntl(l, F_SETFL, O_NONBLOCK));
    CALL(accept(l, NULL, NULL));
    close(c);
    c = dial(0);
    CALL(close(l));
    CALL(read(c, b, 10) <= 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int d = (int)MUST(socket(AF_INET, SOCK_STREAM, 0));
    CALL(connect(d, (void *)&a, sizeof a));
    close(c), close(d);
}

static void urgent(int in_line) {
    section(in_line ? "urgent data in line" : "urgent data");
    int l = listener(AF_INET, 0), c = dial(0), s = (int)MUST(accept(l, NULL, NULL)), at = -1;
    MUST(setsockopt(s, SOL_SOCKET, SO_OOBINLINE, &in_line, sizeof in_line));
    CALL(recv(s, b, 1, MSG_OOB));
    CALL(send(c, "ab", 2, 0));
    CALL(send(c, "cX", 2, MSG_OOB));
    CALL(send(c, "de", 2, 0));
    struct pollfd p = {s, POLLIN | POLLPRI, 0};
    CALL(poll(&p, 1, 5000));
    CHECK((p.revents & POLLPRI) && (p.revents & POLLIN));
    b[0] = 0;
    CALL(recv(s, b, 1, MSG_OOB | MSG_PEEK));
    CALL(recv(s, b, 1, MSG_OOB));
    SAY("'%.1s'", b);
    CALL(recv(s, b, 1, MSG_OOB));
    CALL(ioctl(s, SIOCATMARK, &at));
    SAY("mark %d", at);
    memset(b, 0, 10);
    CALL(recv(s, b, 10, 0));
    SAY("'%s'", b);
    CALL(ioctl(s, SIOCATMARK, &at));
    SAY("mark %d", at);
    memset(b, 0, 10);
    CALL(recv(s, b, 10, 0));
    SAY("'%s'", b);
    CALL(ioctl(s, SIOCATMARK, &at));
    SAY("mark %d", at);
    close(s), close(c), close(l);
}

static void *drain(void *from) {
    static char in[1 << 16];
    long n, all = 0;
    while ((n = read((int)(intptr_t)from, in, sizeof in)) > 0) all += n;
    return (void *)all;
}

static void much(void) {
    section("much");
    int l = listener(AF_INET6, 0), c = dial(0), s = (int)MUST(accept(l, NULL, NULL));
    pthread_t t;
    void *all;
    MUST(pthread_create(&t, NULL, drain, (void *)(intptr_t)s));
    for (int i = 0; i < 8; i++) MUST(write(c, b, sizeof b));
    CALL(shutdown(c, SHUT_WR));
    pthread_join(t, &all);
    SAY("%ld bytes", (long)all);
    close(s), close(c), close(l);
}

static void gone(void) {
    section("a peer that has gone");
    int l = listener(AF_INET, 0), c = dial(0);
    close((int)MUST(accept(l, NULL, NULL)));
    close(l);
    while (send(c, "meow", 4, MSG_NOSIGNAL) > 0) {
    }
    CHECK(errno == EPIPE || errno == ECONNRESET);
    struct epoll_event v = {.events = EPOLLOUT};
    int e = (int)MUST(epoll_create1(0));
    MUST(epoll_ctl(e, EPOLL_CTL_ADD, c, &v));
    CALL(epoll_wait(e, &v, 1, 5000));
    CHECK((v.events & (EPOLLOUT | EPOLLHUP)) == (EPOLLOUT | EPOLLHUP));
    close(e), close(c);
}

static void state(const char *who, int s) {
    struct tcp_info i = {0};
    socklen_t n = sizeof i;
    CALL(getsockopt(s, IPPROTO_TCP, TCP_INFO, &i, &n) < 0);
    if (i.tcpi_state == TCP_FIN_WAIT1) i.tcpi_state = TCP_FIN_WAIT2; // until its end is acknowledged
    SAY("%s is in state %d; %u of %u wait", who, i.tcpi_state, i.tcpi_state == TCP_LISTEN ? i.tcpi_unacked : 0, i.tcpi_state == TCP_LISTEN ? i.tcpi_sacked : 0);
    CHECK(n >= 104);
    n = 1;
    CALL(getsockopt(s, IPPROTO_TCP, TCP_INFO, &i, &n));
    SAY("%d byte of it", n);
}

static void states(void) {
    int l = listener(AF_INET, 0);
    state("the listener", l);
    int c = dial(0);
    state("the listener", l);
    int s = (int)MUST(accept(l, NULL, NULL));
    state("the listener", l), state("the client", c), state("the server", s);
    MUST(shutdown(c, SHUT_WR));
    readable(s);
    state("the client", c), state("the server", s);
    close(s), close(c), close(l);
    int fresh = (int)MUST(socket(AF_INET, SOCK_STREAM, 0));
    state("a fresh one", fresh);
    close(fresh);
}

int main(void) {
    one(AF_INET);
    one(AF_INET6);
    without_waiting();
    urgent(0);
    urgent(1);
    much();
    gone();
    states();
    return 0;
}
