// What every program here uses to say what happened. A transcript must be the same wherever and
// whenever the program runs: no addresses, process ids, times or orders that chance decides.
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// Makes the call, prints it as written and its outcome ("dup(99) -> EBADF"), returns its result.
#define CALL(expression) transcript_call(#expression, (errno = 0, (long)(expression)))
// Prints the claim as written and whether it holds: "size == 5: yes".
#define CHECK(claim) transcript_check(#claim, (claim) ? 1 : 0)
#define SAY(...) (printf(__VA_ARGS__), putchar('\n'))
// For what the test itself needs; ends the program when it fails.
#define MUST(expression) transcript_must(#expression, (errno = 0, (long)(expression)))

__attribute__((constructor)) static void transcript_start(void) { setvbuf(stdout, NULL, _IOLBF, 0); }

static inline long transcript_call(const char *what, long result) {
    int error = errno;
    const char *name = result == -1 && error ? strerrorname_np(error) : NULL;
    if (name) {
        SAY("%s -> %s", what, name);
    } else {
        SAY("%s -> %ld", what, result);
    }
    errno = error;
    return result;
}

static inline int transcript_check(const char *what, int holds) {
    SAY("%s: %s", what, holds ? "yes" : "NO");
    return holds;
}

static inline long transcript_must(const char *what, long result) {
    if (result != -1) return result;
    SAY("%s failed: %s", what, strerrorname_np(errno));
    exit(99);
}

static inline void section(const char *title) { SAY("-- %s", title); }

static inline int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static inline void sleep_ms(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&t, &t) == -1 && errno == EINTR) {
    }
}

// "ready", and which of the poll events, for one descriptor right now.
static inline const char *events_text(short events) {
    static char text[64];
    snprintf(text, sizeof text, "%s%s%s%s%s%s", events & POLLIN ? " IN" : "", events & POLLOUT ? " OUT" : "",
             events & POLLERR ? " ERR" : "", events & POLLHUP ? " HUP" : "", events & POLLRDHUP ? " RDHUP" : "",
             events & POLLNVAL ? " NVAL" : "");
    return events ? text + 1 : "nothing";
}

static inline void say_ready(const char *name, int fd) {
    struct pollfd p = {fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    MUST(poll(&p, 1, 0));
    SAY("%s is ready for %s", name, events_text(p.revents));
}
