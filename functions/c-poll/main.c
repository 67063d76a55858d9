// HTTP server on poll: slot 0 is the listener, slot i the connection conns[i].
#define _GNU_SOURCE
#include <poll.h>

#include "../c-common/http.h"

enum { MAX_SLOTS = 4096 };

static struct pollfd fds[MAX_SLOTS];
static struct http_conn *conns[MAX_SLOTS];
static int used = 1;

static void accept_all(int listener) {
    int fd;
    while (used < MAX_SLOTS && (fd = http_accept(listener, SOCK_NONBLOCK)) >= 0) {
        fds[used] = (struct pollfd){.fd = fd, .events = POLLIN};
        conns[used++] = http_open(fd);
    }
    fds[0].events = used < MAX_SLOTS ? POLLIN : 0;
}

static void serve(int slot) {
    enum http_want want = http_step(conns[slot], fds[slot].events == POLLOUT ? HTTP_WRITE : HTTP_READ);
    fds[slot].events = want == HTTP_WRITE ? POLLOUT : POLLIN;
    if (want == HTTP_CLOSE) {
        http_close(conns[slot]);
        fds[slot] = fds[--used];
        conns[slot] = conns[used];
        fds[0].events = POLLIN;
    }
}

int main(int argc, char **argv) {
    int listener = http_listen(argc, argv, SOCK_NONBLOCK);
    fds[0] = (struct pollfd){.fd = listener, .events = POLLIN};
    for (;;) {
        if (poll(fds, (nfds_t)used, -1) < 0) continue;
        for (int slot = used - 1; slot > 0; slot--) {  // downwards: a freed slot is filled from behind
            if (fds[slot].revents) serve(slot);
        }
        if (fds[0].revents) accept_all(listener);
    }
}
