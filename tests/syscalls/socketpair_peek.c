// MSG_PEEK on a pair of stream sockets.
#include "transcript.h"

#include <sys/socket.h>

static int s[2];

int main(void) {
    char b[100];
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s));
    CALL(write(s[0], "hello", 5));
    CALL(recv(s[1], b, 2, MSG_PEEK));
    CALL(recv(s[1], b, 100, MSG_PEEK));
    CALL(recv(s[1], b, 100, 0));
    CALL(recv(s[1], b, 100, MSG_PEEK));
}
