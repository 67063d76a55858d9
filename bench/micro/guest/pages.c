// An epoll server with an area of memory. GET /dirty/N writes to N pages of it, the same ones each time, and replies with its
// address.
//   pages MIB [random]      random: no compression finds anything in the area
#define _GNU_SOURCE
#include <sys/epoll.h>
#include <sys/mman.h>

#include "scatter.h"
#include "server.h"

enum { kPage = 4096 };
static unsigned char *area;
static unsigned long pages;

static void fill(int random) {
    unsigned long state = 88172645463325252ul;
    for (unsigned long page = 0; page < pages; page++) {
        unsigned long *words = (unsigned long *)(area + page * kPage);
        words[0] = page + 1; // no page is like another one, or zero
        for (unsigned i = 1; random && i < kPage / sizeof(*words); i++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            words[i] = state;
        }
    }
}

static void serve(int connection) {
    char word[16];
    unsigned long count;
    read_request(connection, word, &count);
    for (unsigned long i = 0; i < count && i < pages; i++)
        area[scattered_page(i, pages) * kPage + i % 64 * 64]++;
    reply_and_close(connection, (unsigned long)area);
}

int main(int argc, char **argv) {
    pages = (argc > 1 ? strtoul(argv[1], NULL, 10) : 1) * (1 << 20) / kPage;
    area = mmap(NULL, pages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED)
        return 1;
    fill(argc > 2 && strcmp(argv[2], "random") == 0);
    const int listener = listen_somewhere(), epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        if (epoll_wait(epoll, &event, 1, -1) != 1)
            continue;
        if (event.data.fd != listener) {
            serve(event.data.fd);
            continue;
        }
        struct epoll_event client = {.events = EPOLLIN, .data.fd = accept(listener, NULL, NULL)};
        epoll_ctl(epoll, EPOLL_CTL_ADD, client.data.fd, &client);
    }
}
