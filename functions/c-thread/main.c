// HTTP server whose second thread accepts and serves, one connection after the other, while the
// main thread waits for it.
#define _GNU_SOURCE
#include <pthread.h>

#include "../c-common/http.h"

static void *serve(void *argument) {
    int listener = *(int *)argument;
    for (;;) {
        int fd = http_accept(listener, 0);
        if (fd < 0) continue;
        struct http_conn *c = http_open(fd);
        while (http_step(c, HTTP_READ) != HTTP_CLOSE) {
        }
        http_close(c);
    }
    return NULL;
}

int main(int argc, char **argv) {
    int listener = http_listen(argc, argv, 0);
    pthread_t thread;
    if (pthread_create(&thread, NULL, serve, &listener) != 0) return 1;
    pthread_join(thread, NULL);
}
