/* Functions that the benchmark calls, in a machine and without one. */
#include <stddef.h>
#include <stdio.h>

static int bench_counter;

static inline int bench_count(void) { return ++bench_counter; }

/* A page of about 3 KiB: some 15 us of work. */
static inline size_t bench_page(const char *name, char *out, size_t room) {
    size_t n = (size_t)snprintf(out, room, "<h1>Hello %s, number %d</h1>\n<table>\n", name, bench_count());
    for (int row = 0; row < 40 && n < room; ++row)
        n += (size_t)snprintf(out + n, room - n, "<tr><td>%d<td>%.3f<td>%s<td>%x</tr>\n", row, row / 7.0, name, row * row);
    return n;
}
