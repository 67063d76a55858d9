// An HTTP server that takes its time, in the ways that a time limit must tell apart. `patience PORT [compute MS]`: computes
// for so long before it listens, by its own CPU clock, after it has said so.
#include "server.h"

#include <time.h>

static void say(int fd, const char *text) {
    if (write(fd, text, strlen(text)) < 0) perror("write");
}

static void sleep_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&time, &time) < 0) {
    }
}

static void compute(long rounds) {
    volatile long sum = 0;
    for (long i = 0; i < rounds; ++i) sum += i;
}

// By its own CPU clock.
static void work_ms(long ms) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    const long long end = now.tv_sec * 1000000000LL + now.tv_nsec + ms * 1000000LL;
    do {
        compute(100000);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while (now.tv_sec * 1000000000LL + now.tv_nsec < end);
}

static void answer(int fd, const char *path) {
    const long ms = strrchr(path, '/') ? atol(strrchr(path, '/') + 1) : 0;
    if (strncmp(path, "/sleep/", 7) == 0) {
        say(STDOUT_FILENO, "sleeping\n");
        sleep_ms(ms);
    }
    if (strncmp(path, "/never", 6) == 0)
        for (;;) pause();
    if (strncmp(path, "/ticks", 6) == 0)
        for (;;) sleep_ms(20);
    if (strncmp(path, "/spin", 5) == 0)
        for (volatile int forever = 1; forever;) {
        }
    if (strncmp(path, "/work/", 6) == 0) work_ms(ms);
    if (strncmp(path, "/pour", 5) == 0) { // it moves bytes all the time
        say(fd, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        for (;;) {
            work_ms(20);
            say(fd, "more ");
        }
    }
    say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nfi");
    if (strncmp(path, "/drip/", 6) == 0) sleep_ms(ms);
    say(fd, "ne..");
}

int main(int argc, char **argv) {
    if (argc > 3) {
        printf("computing\n");
        fflush(stdout);
        compute(atol(argv[3]));
    }
    const int listener = listen_on(atoi(argv[1]));
    static char request[65536];
    for (;;) {
        const int fd = accept(listener, NULL, NULL);
        if (fd < 0) continue;
        for (;;) { // as many requests as come
            size_t n = 0;
            ssize_t got = 1;
            request[0] = 0;
            while (!strstr(request, "\r\n\r\n") && n < sizeof request - 1 && (got = read(fd, request + n, sizeof request - 1 - n)) > 0)
                request[n += (size_t)got] = 0;
            char path[100];
            if (got <= 0 || sscanf(request, "GET %99s", path) != 1) break;
            answer(fd, path);
            if (strstr(request, "Connection: close")) break;
        }
        close(fd);
    }
}
