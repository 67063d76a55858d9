// Has MIB of memory with known content, and takes as much again for each request.
//   fills MIB PORT
// The reply is "sound, MIB MiB, request N" if the content is as it was and what was taken was zero, at first and when a
// part of it was given back and taken again. N counts from 1, in memory of its own.
#include "server.h"

#include <sys/mman.h>

static unsigned char *known;
static size_t bytes;

static unsigned char *take(size_t size) {
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) exit(3);
    return at;
}

static int has_only(const unsigned char *at, size_t size, unsigned char value) {
    for (size_t i = 0; i < size; ++i)
        if (at[i] != value) return 0;
    return 1;
}

static void reply(const char *line, char *out, size_t size) {
    (void)line;
    const size_t third = bytes / 3 & ~4095ul, page = 4096;
    unsigned char *mine = take(bytes);
    int sound = has_only(mine, bytes, 0);
    memset(mine, 7, bytes);
    munmap(mine + third, third);
    unsigned char *again = take(third);
    sound &= has_only(again, third, 0);
    memset(again, 8, third);
    mprotect(mine, page, PROT_READ);
    mprotect(mine, page, PROT_READ | PROT_WRITE);
    sound &= has_only(mine, third, 7) && has_only(mine + 2 * third, bytes - 2 * third, 7);
    for (size_t i = page; i < bytes; i += page) sound &= has_only(known + i, page, (unsigned char)(i / page % 251 + 1));
    snprintf(out, size, "%s, %zu MiB, request %d", sound ? "sound" : "wrong", bytes >> 20, known[0]++);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    bytes = (size_t)atoi(argv[1]) << 20;
    known = take(bytes);
    for (size_t i = 0; i < bytes; ++i) known[i] = (unsigned char)(i / 4096 % 251 + 1);
    serve(listen_on(atoi(argv[2])), reply);
}
