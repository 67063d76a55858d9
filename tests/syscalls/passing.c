// What travels beside the bytes of a Unix socket: files, and who sent.
#include "transcript.h"

#include <sys/socket.h>
#include <sys/wait.h>

static char b[100];
static union {
    struct cmsghdr header;
    char room[1200];
} control;

static void pair(int type, int s[2]) { MUST(socketpair(AF_UNIX, type, 0, s)); }

static struct msghdr with_files(const int *files, int count, const char *text) {
    static struct iovec v;
    v.iov_base = (void *)text, v.iov_len = strlen(text);
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = CMSG_SPACE(sizeof(int) * count)};
    memset(control.room, 0, sizeof control.room);
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET, h->cmsg_type = SCM_RIGHTS, h->cmsg_len = CMSG_LEN(sizeof(int) * count);
    memcpy(CMSG_DATA(h), files, sizeof(int) * count);
    return m;
}

// Receives, says what came, and returns the first file.
static int received(int s, size_t bytes, size_t room, int flags) {
    struct iovec v = {b, bytes};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = room ? control.room : NULL, .msg_controllen = room};
    int first = -1;
    memset(b, 0, sizeof b);
    long n = CALL(recvmsg(s, &m, flags));
    if (n < 0) return -1;
    SAY("'%s', flags %x, %d bytes of control", b, m.msg_flags & ~MSG_CMSG_CLOEXEC, (int)m.msg_controllen);
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h)) {
        int count = (int)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        SAY("level %d type %d, %d words", h->cmsg_level, h->cmsg_type, count);
        if (h->cmsg_type == SCM_CREDENTIALS) {
            int who[3];
            memcpy(who, CMSG_DATA(h), sizeof who);
            CHECK(who[0] == getpid() && who[1] == (int)getuid() && who[2] == (int)getgid());
        }
        for (int i = 0; h->cmsg_type == SCM_RIGHTS && i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(h) + i * sizeof fd, sizeof fd);
            SAY("a file, close-on-exec %d", fcntl(fd, F_GETFD));
            if (first < 0)
                first = fd;
            else
                close(fd);
        }
    }
    return first;
}

static void files(const char *title, int type) {
    section(title);
    int s[2], p[2];
    pair(type, s);
    MUST(pipe(p));
    struct msghdr m = with_files(&p[1], 1, "one");
    CALL(sendmsg(s[0], &m, 0));
    close(p[1]);
    int w = received(s[1], 100, sizeof control.room, 0);
    CALL(write(w, "by another way", 14));
    close(w);
    CALL(read(p[0], b, 100));
    CALL(read(p[0], b, 100));
    int both[2] = {0, 1};
    m = with_files(both, 2, "two");
    CALL(sendmsg(s[0], &m, 0));
    CALL(send(s[0], "plain", 5, 0));
    close(received(s[1], 100, sizeof control.room, MSG_CMSG_CLOEXEC));
    received(s[1], 100, sizeof control.room, 0);
    m = with_files(both, 2, "cut");
    CALL(sendmsg(s[0], &m, 0));
    close(received(s[1], 100, CMSG_LEN(sizeof(int)), 0));
    m = with_files(both, 2, "no room");
    CALL(sendmsg(s[0], &m, 0));
    received(s[1], 100, 0, 0);
    m = with_files(both, 2, "read");
    CALL(sendmsg(s[0], &m, 0));
    CALL(read(s[1], b, 100));
    m = with_files(&s[0], 1, "itself");
    CALL(sendmsg(s[0], &m, 0));
    close(s[0]);
    int self = received(s[1], 100, sizeof control.room, 0);
    CALL(write(self, "through itself", 14));
    CALL(read(s[1], b, 100));
    close(self), close(s[1]), close(p[0]);
}

static void in_streams(void) {
    section("where reads end");
    int s[2];
    pair(SOCK_STREAM, s);
    int one = 1;
    CALL(send(s[0], "before ", 7, 0));
    struct msghdr m = with_files(&one, 1, "with ");
    CALL(sendmsg(s[0], &m, 0));
    CALL(send(s[0], "after", 5, 0));
    close(received(s[1], 3, sizeof control.room, 0));
    int fd = received(s[1], 100, sizeof control.room, 0);
    if (fd >= 0) close(fd);
    fd = received(s[1], 100, sizeof control.room, MSG_DONTWAIT);
    if (fd >= 0) close(fd);
    close(s[0]), close(s[1]);
}

static void credentials(void) {
    section("credentials");
    int s[2], on = 1, got = -1;
    socklen_t n = sizeof got;
    pair(SOCK_DGRAM, s);
    CALL(setsockopt(s[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    CALL(getsockopt(s[1], SOL_SOCKET, SO_PASSCRED, &got, &n));
    SAY("it is %d", got);
    CALL(send(s[0], "hello", 5, 0));
    received(s[1], 100, sizeof control.room, 0);
    struct { int pid; unsigned uid, gid; } who = {getpid(), getuid(), getgid()};
    struct iovec v = {"said", 4};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = CMSG_SPACE(sizeof who)};
    memset(control.room, 0, sizeof control.room);
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET, h->cmsg_type = SCM_CREDENTIALS, h->cmsg_len = CMSG_LEN(sizeof who);
    memcpy(CMSG_DATA(h), &who, sizeof who);
    CALL(sendmsg(s[0], &m, 0));
    received(s[1], 100, sizeof control.room, 0);
    close(s[0]), close(s[1]);
}

static void wrong(void) {
    section("wrong");
    int s[2], bad = 99, many[300] = {0};
    pair(SOCK_STREAM, s);
    struct msghdr m = with_files(&bad, 1, "x");
    CALL(sendmsg(s[0], &m, 0));
    m = with_files(many, 254, "x");
    CALL(sendmsg(s[0], &m, 0));
    m = with_files(many, 1, "x");
    CMSG_FIRSTHDR(&m)->cmsg_len = 4;
    CALL(sendmsg(s[0], &m, 0));
    m = with_files(many, 1, "x");
    CMSG_FIRSTHDR(&m)->cmsg_len = 100;
    CALL(sendmsg(s[0], &m, 0));
    m = with_files(many, 1, "x");
    CMSG_FIRSTHDR(&m)->cmsg_type = 77;
    CALL(sendmsg(s[0], &m, 0));
    m = with_files(many, 1, "x");
    m.msg_control = (void *)8;
    CALL(sendmsg(s[0], &m, 0));
    m = with_files(many, 1, "fits");
    CALL(sendmsg(s[0], &m, 0));
    struct iovec v = {b, 100};
    struct msghdr got = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = (void *)8, .msg_controllen = 100};
    CALL(recvmsg(s[1], &got, 0) < 0 && errno == EFAULT ? 1 : got.msg_flags ? 1 : 0);
    CALL(recv(s[1], b, 10, MSG_DONTWAIT));
    close(s[0]), close(s[1]);
}

int main(void) {
    files("files with a stream", SOCK_STREAM);
    files("files with datagrams", SOCK_DGRAM);
    files("files with sequenced packets", SOCK_SEQPACKET);
    in_streams();
    credentials();
    wrong();
    return 0;
}
