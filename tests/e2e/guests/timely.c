// Like a program that does something at a certain time of each second: reads other pages in each millisecond of it, 1.2 MB
// of 4.
#include "server.h"

#include <time.h>

enum { PAGE = 4096, A_SECOND = 1000, WINDOW = 150 }; // milliseconds, and pages

static volatile char pages[A_SECOND][PAGE];

static void reply(const char *line, char *out, size_t size) {
    (void)line;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const int ms = (int)(now.tv_nsec / 1000000);
    int sum = 0;
    for (int i = ms + A_SECOND - WINDOW; i < ms + A_SECOND + WINDOW; ++i) sum += pages[i % A_SECOND][0];
    snprintf(out, size, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\n%6d", sum);
}

int main(int argc, char **argv) {
    for (int i = 0; i < A_SECOND; ++i) memcpy((char *)pages[i], &(int){i + 1}, sizeof i); // none is like another
    serve(listen_on(argc > 1 ? atoi(argv[1]) : 8080), reply);
}
