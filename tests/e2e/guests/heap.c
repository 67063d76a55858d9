// What mprotect says of making memory from brk executable, moved memory too; and calls of threads, for the trace.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void *nothing(void *p) { return p; }

static void tell(const char *what, void *at, size_t bytes) {
    printf("%s: %s\n", what, mprotect(at, bytes, PROT_READ | PROT_WRITE | PROT_EXEC) == 0 ? "ok" : strerrorname_np(errno));
}

int main(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, nothing, NULL) == 0) pthread_join(thread, NULL);
    char *heap = sbrk(0);
    heap += -(unsigned long)heap & 4095;
    if (brk(heap + 4 * 4096) != 0) return 1;
    memset(heap, 1, 4 * 4096);
    tell("heap", heap, 4096);
    tell("heap and what is behind", heap + 4096, 2 * 4096);
    char *moved = mremap(heap + 2 * 4096, 4096, 2 * 4096, MREMAP_MAYMOVE);
    if (moved == MAP_FAILED) return 2;
    tell("moved", moved, 4096);
    char *other = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    tell("other memory", other, 4096);
    return 0;
}
