// HTTP server that blocks in accept and read: one connection after the other.
#define _GNU_SOURCE
#include "../c-common/http.h"

int main(int argc, char **argv) {
    int listener = http_listen(argc, argv, 0);
    for (;;) {
        int fd = http_accept(listener, 0);
        if (fd < 0) continue;
        struct http_conn *c = http_open(fd);
        while (http_step(c, HTTP_READ) != HTTP_CLOSE) {
        }
        http_close(c);
    }
}
