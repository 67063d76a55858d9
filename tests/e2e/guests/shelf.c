// Has MIB of memory that cannot be compressed, each page another one.
//   shelf MIB PORT
// GET /N answers with the sum of page N. GET / touches none of that memory.
#include "server.h"

#include <sys/mman.h>

enum { kPage = 4096 };
static unsigned char *pages;

static void reply(const char *line, char *out, size_t size) {
    unsigned long sum = 0;
    long page = -1; // not by the C library, which may be cold, too
    for (const char *digit = line + 5; *digit >= '0' && *digit <= '9'; ++digit)
        page = (page < 0 ? 0 : page * 10) + (*digit - '0');
    for (long i = 0; page >= 0 && i < kPage; ++i) sum = sum * 31 + pages[page * kPage + i];
    char body[64];
    const int bytes = snprintf(body, sizeof body, "%lx\n", sum);
    snprintf(out, size, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", bytes, body);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    signal(SIGPIPE, SIG_IGN);
    const size_t words = (strtoul(argv[1], NULL, 10) << 20) / sizeof(uint64_t);
    uint64_t *at = mmap(NULL, words * sizeof *at, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return 3;
    pages = (unsigned char *)at;
    uint64_t x = 88172645463325252u; // xorshift64
    for (size_t i = 0; i < words; ++i) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        at[i] = x;
    }
    serve(listen_on(atoi(argv[2])), reply);
}
