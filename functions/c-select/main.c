// HTTP server on select: a connection's fd is its index, so at most FD_SETSIZE of them.
#define _GNU_SOURCE
#include <sys/select.h>

#include "../c-common/http.h"

static struct http_conn *conns[FD_SETSIZE];
static fd_set readers, writers;
static int top;  // the highest fd in use

static void accept_all(int listener) {
    int fd;
    while ((fd = http_accept(listener, SOCK_NONBLOCK)) >= 0) {
        if (fd >= FD_SETSIZE) {
            close(fd);
            continue;
        }
        conns[fd] = http_open(fd);
        FD_SET(fd, &readers);
        if (fd > top) top = fd;
    }
}

static void serve(int fd) {
    enum http_want want = http_step(conns[fd], FD_ISSET(fd, &writers) ? HTTP_WRITE : HTTP_READ);
    FD_CLR(fd, &readers);
    FD_CLR(fd, &writers);
    if (want == HTTP_CLOSE) {
        http_close(conns[fd]);
        conns[fd] = NULL;
    } else {
        FD_SET(fd, want == HTTP_WRITE ? &writers : &readers);
    }
}

int main(int argc, char **argv) {
    int listener = http_listen(argc, argv, SOCK_NONBLOCK);
    FD_SET(listener, &readers);
    top = listener;
    for (;;) {
        fd_set readable = readers, writable = writers;
        if (select(top + 1, &readable, &writable, NULL, NULL) < 0) continue;
        for (int fd = 0; fd <= top; fd++) {
            if (conns[fd] && (FD_ISSET(fd, &readable) || FD_ISSET(fd, &writable))) serve(fd);
        }
        if (FD_ISSET(listener, &readable)) accept_all(listener);
    }
}
