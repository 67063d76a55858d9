// Unix sockets with names: streams, sequenced packets and datagrams of one program.
#include "transcript.h"

#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static char b[200];

static struct sockaddr_un named(const char *name) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    strcpy(a.sun_path, name);
    return a;
}

static void say_name(const char *who, int s, int (*ask)(int, struct sockaddr *restrict, socklen_t *restrict)) {
    struct sockaddr_un a = {0};
    socklen_t n = sizeof a;
    if (CALL(ask(s, (void *)&a, &n)) == 0) SAY("%s: family %d, %d bytes, '%.*s'", who, a.sun_family, n, n > 2 ? (int)n - 2 : 0, a.sun_path);
}

static void connections(const char *title, int type) {
    section(title);
    struct sockaddr_un a = named("name");
    umask(027);
    int l = (int)MUST(socket(AF_UNIX, type, 0)), second = (int)MUST(socket(AF_UNIX, type, 0)), c = (int)MUST(socket(AF_UNIX, type, 0));
    CALL(listen(l, 4));
    CALL(connect(c, (void *)&a, sizeof a));
    CALL(bind(l, (void *)&a, sizeof a));
    struct sockaddr_un other = named("other");
    CALL(bind(l, (void *)&other, sizeof other));
    struct stat st;
    CALL(stat("name", &st));
    SAY("mode %o", st.st_mode);
    CALL(bind(second, (void *)&a, sizeof a));
    CALL(connect(c, (void *)&a, sizeof a));
    CALL(listen(l, 4));
    say_name("the listener", l, getsockname);
    CALL(chmod("name", 0600));
    CALL(connect(c, (void *)&a, sizeof a));
    CALL(connect(c, (void *)&a, sizeof a));
    struct sockaddr_un peer = {0};
    socklen_t n = sizeof peer;
    int s = (int)CALL(accept(l, (void *)&peer, &n));
    SAY("from family %d, %d bytes", peer.sun_family, n);
    say_name("the server", s, getsockname);
    say_name("its peer", s, getpeername);
    say_name("the client", c, getsockname);
    say_name("its peer", c, getpeername);
    struct { int pid; unsigned uid, gid; } who = {0};
    n = sizeof who;
    CALL(getsockopt(s, SOL_SOCKET, SO_PEERCRED, &who, &n));
    CHECK(who.pid == getpid() && who.uid == getuid() && who.gid == getgid());
    CALL(send(c, "one", 3, 0));
    CALL(send(c, "two", 3, 0));
    memset(b, 0, sizeof b);
    CALL(recv(s, b, 100, 0));
    SAY("'%s'", b);
    CALL(close(c));
    CALL(recv(s, b, 100, 0) >= 0);
    CALL(unlink("name"));
    CALL(stat("name", &st));
    close(l), close(second), close(s);
}

static void datagrams(void) {
    section("datagrams");
    struct sockaddr_un a = named("a"), c = named("c"), from = {0};
    int s = (int)MUST(socket(AF_UNIX, SOCK_DGRAM, 0)), t = (int)MUST(socket(AF_UNIX, SOCK_DGRAM, 0));
    CALL(sendto(t, "early", 5, 0, (void *)&a, sizeof a));
    CALL(bind(s, (void *)&a, sizeof a));
    CALL(bind(t, (void *)&c, sizeof c));
    CALL(sendto(t, "hello", 5, 0, (void *)&a, sizeof a));
    CALL(connect(t, (void *)&a, sizeof a));
    CALL(send(t, "again", 5, 0));
    say_ready("the first", s);
    socklen_t n = sizeof from;
    CALL(recvfrom(s, b, 100, 0, (void *)&from, &n));
    CHECK(n >= 4 && from.sun_family == AF_UNIX);
    CALL(recv(s, b, 3, MSG_TRUNC));
    CALL(recv(s, b, 3, MSG_DONTWAIT));
    CALL(listen(s, 1));
    CALL(accept(s, NULL, NULL));
    close(s), close(t);
    CALL(unlink("a") == 0 || errno == ENOENT); // a machine takes names away with their sockets
    CALL(unlink("c") == 0 || errno == ENOENT);
}

static void abstract(void) {
    section("abstract");
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path + 1, 60, "kvmserver-test-%d", getpid());
    socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(a.sun_path + 1));
    int l = (int)MUST(socket(AF_UNIX, SOCK_STREAM, 0)), c = (int)MUST(socket(AF_UNIX, SOCK_STREAM, 0));
    CALL(bind(l, (void *)&a, n));
    CALL(listen(l, 1));
    CALL(connect(c, (void *)&a, n - 1));
    CALL(connect(c, (void *)&a, n));
    int s = (int)MUST(accept(l, NULL, NULL));
    CALL(write(s, "x", 1));
    CALL(read(c, b, 10));
    close(s), close(c), close(l);
}

static void wrong(void) {
    section("wrong");
    struct sockaddr_un a = named("nowhere/name"), file = named("file"), none = {.sun_family = AF_UNIX};
    struct sockaddr_un inet = {.sun_family = AF_INET};
    int s = (int)MUST(socket(AF_UNIX, SOCK_STREAM, 0));
    close((int)MUST(open("file", O_CREAT | O_WRONLY, 0600)));
    CALL(bind(s, (void *)&a, sizeof a));
    CALL(bind(s, (void *)&file, sizeof file));
    CALL(bind(s, (void *)&inet, sizeof inet));
    CALL(bind(s, (void *)8, sizeof a));
    CALL(bind(s, (void *)&a, 1));
    CALL(bind(s, (void *)&a, 120));
    CALL(connect(s, (void *)&file, sizeof file));
    CALL(connect(s, (void *)&a, sizeof a));
    CALL(connect(s, (void *)8, sizeof a));
    CALL(listen(s, 1));
    CALL(accept(s, NULL, NULL));
    CALL(setsockopt(s, IPPROTO_TCP, 1, b, 4));
    CALL(socket(AF_UNIX, 9, 0));
    CALL(socket(AF_INET, SOCK_SEQPACKET, 0));
    (void)none;
    close(s);
}

int main(void) {
    connections("streams", SOCK_STREAM);
    connections("sequenced packets", SOCK_SEQPACKET);
    datagrams();
    abstract();
    wrong();
    return 0;
}
