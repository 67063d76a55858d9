// Sockets that are bound and then closed, connected or made to listen; what IPV6_V6ONLY leaves free. Ports are the system's choice.
#include "transcript.h"

#include <netinet/in.h>
#include <sys/socket.h>

static struct sockaddr_in loopback(int port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return a;
}

static int port_of(int s) {
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    MUST(getsockname(s, (void *)&a, &n));
    return ntohs(a.ss_family == AF_INET ? ((struct sockaddr_in *)&a)->sin_port : ((struct sockaddr_in6 *)&a)->sin6_port);
}

static int bound(int port) {
    struct sockaddr_in a = loopback(port);
    int s = (int)MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(bind(s, (void *)&a, sizeof a));
    return s;
}

static void closed(void) {
    section("bound and closed");
    int s = bound(0), port = port_of(s), i = 0;
    close(s);
    struct sockaddr_in a = loopback(port);
    s = (int)MUST(socket(AF_INET, SOCK_STREAM, 0));
    CALL(bind(s, (void *)&a, sizeof a));
    close(s);
    for (; i < 2000; i++) close(bound(0));
    SAY("%d bound and closed", i);
    int many[40];
    for (i = 0; i < 40; i++) {
        many[i] = bound(0);
        MUST(listen(many[i], 1));
    }
    SAY("%d listen", i);
    while (i-- > 0) close(many[i]);
}

static void connected(void) {
    section("bound and connected");
    int l = bound(0);
    MUST(listen(l, 8));
    struct sockaddr_in to = loopback(port_of(l));
    for (int reuse = 0; reuse < 2; reuse++) {
        int c = (int)MUST(socket(AF_INET, SOCK_STREAM, 0));
        setsockopt(c, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
        struct sockaddr_in from = loopback(0);
        CALL(bind(c, (void *)&from, sizeof from));
        int port = port_of(c);
        CALL(connect(c, (void *)&to, sizeof to));
        CHECK(port_of(c) == port);
        CALL(connect(c, (void *)&to, sizeof to));
        CALL(bind(c, (void *)&from, sizeof from));
        CALL(listen(c, 1));
        close(c);
    }
    close(l);
}

static int six(int only, int port) {
    int s = (int)MUST(socket(AF_INET6, SOCK_STREAM, 0));
    MUST(setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only));
    struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    if (CALL(bind(s, (void *)&a, sizeof a)) == 0) CALL(listen(s, 1));
    return s;
}

static void v6_only(void) {
    section("IPV6_V6ONLY");
    int four = (int)MUST(socket(AF_INET, SOCK_STREAM, 0));
    struct sockaddr_in a = {.sin_family = AF_INET};
    MUST(bind(four, (void *)&a, sizeof a));
    MUST(listen(four, 1));
    int s = six(1, port_of(four)), only = -1, off = 0;
    socklen_t n = sizeof only;
    CALL(getsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &only, &n));
    SAY("it is %d", only);
    CALL(setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off));
    close(s);
    s = (int)MUST(socket(AF_INET6, SOCK_STREAM, 0));
    CALL(getsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &only, &n));
    SAY("at first it is %d", only);
    only = 7;
    CALL(setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only));
    CALL(getsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &only, &n));
    SAY("7 is %d", only);
    CALL(setsockopt(four, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only));
    close(s), close(four);
}

int main(void) {
    closed();
    connected();
    v6_only();
    return 0;
}
