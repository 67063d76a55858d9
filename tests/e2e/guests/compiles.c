// Like a runtime that compiles what is called often: each of its first requests, 600 of them, takes a millisecond. Answers
// which request it is.
#include "server.h"

#include <time.h>

static int requests;

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void reply(const char *line, char *out, size_t size) {
    (void)line;
    if (++requests <= 600)
        for (const int64_t end = now_ns() + 1000000; now_ns() < end;) {}
    snprintf(out, size, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\n%4d", requests);
}

int main(int argc, char **argv) {
    serve(listen_on(argc > 1 ? atoi(argv[1]) : 8080), reply);
}
