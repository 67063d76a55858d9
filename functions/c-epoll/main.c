// HTTP server on a level-triggered epoll.
#define _GNU_SOURCE
#include <sys/epoll.h>

#include "../c-common/http.h"

static void watch(int epoll, int operation, struct http_conn *c, enum http_want want) {
    struct epoll_event event = {.events = want == HTTP_WRITE ? EPOLLOUT : EPOLLIN, .data.ptr = c};
    epoll_ctl(epoll, operation, c->fd, &event);
}

static void accept_all(int epoll, int listener) {
    int fd;
    while ((fd = http_accept(listener, SOCK_NONBLOCK)) >= 0) watch(epoll, EPOLL_CTL_ADD, http_open(fd), HTTP_READ);
}

static void serve(int epoll, struct http_conn *c, uint32_t events) {
    enum http_want ready = events & EPOLLOUT ? HTTP_WRITE : HTTP_READ;
    enum http_want want = http_step(c, ready);
    if (want == HTTP_CLOSE) {
        http_close(c);
    } else if (want != ready) {
        watch(epoll, EPOLL_CTL_MOD, c, want);
    }
}

int main(int argc, char **argv) {
    int listener = http_listen(argc, argv, SOCK_NONBLOCK);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};  // no connection: the listener
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        struct epoll_event events[64];
        int n = epoll_wait(epoll, events, 64, -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr) {
                serve(epoll, events[i].data.ptr, events[i].events);
            } else {
                accept_all(epoll, listener);
            }
        }
    }
}
