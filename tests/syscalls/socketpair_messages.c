// Pairs of Unix sockets that keep the borders of messages.
#include "transcript.h"

#include <sys/socket.h>
#include <sys/uio.h>

static int s[2];
static char b[100];

static void datagrams(const char *kind, int type) {
    section(kind);
    MUST(socketpair(AF_UNIX, type | SOCK_NONBLOCK, 0, s));
    CALL(send(s[0], "first message", 13, 0));
    CALL(send(s[0], "", 0, 0));
    CALL(send(s[0], "third", 5, 0));
    CALL(recv(s[1], b, 5, 0));
    CALL(recv(s[1], b, 100, 0));
    struct iovec in = {b, 3};
    struct msghdr got = {.msg_iov = &in, .msg_iovlen = 1};
    CALL(recvmsg(s[1], &got, MSG_TRUNC));
    SAY("truncated %d", (got.msg_flags & MSG_TRUNC) != 0);
    CALL(recv(s[1], b, 100, 0));
    CALL(send(s[0], "message", 7, 0));
    CALL(recv(s[1], b, 2, MSG_PEEK | MSG_TRUNC));
    CALL(recv(s[1], b, 100, 0));
    close(s[0]), close(s[1]);
}

int main(void) {
    datagrams("datagrams", SOCK_DGRAM);
    datagrams("sequenced packets", SOCK_SEQPACKET);
}
