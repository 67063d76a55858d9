// An HTTP server whose requests end their machine in ways in which no program should: by instructions that KVM has not ended yet
// when it stops.
#include "server.h"

#include <sys/mman.h>

enum { kPort = 0x5a0, kOther = 0x80 }; // of the first the guest kernel makes use, with OUT
static char page[4096];

static void leave(const char *path) {
    if (strcmp(path, "/in") == 0) {
        // Where KVM ends this in the next invocation, that one goes on behind it: it says so, by a system call that needs no stack.
        static const char told[] = "the next invocation runs this\n";
        __asm__ volatile("inl %%dx, %%eax\n\tmov $1, %%eax\n\tsyscall\n\tud2" ::"d"(kPort), "a"(0), "D"(2), "S"(told), "c"(sizeof told - 1)
                         : "memory");
    }
    long count = 64;
    void *at = page;
    if (strcmp(path, "/inb") == 0) __asm__ volatile("inb %%dx, %%al" ::"d"(kPort), "a"(0));
    if (strcmp(path, "/insb") == 0) __asm__ volatile("insb" : "+D"(at) : "d"(kPort) : "memory");
    if (strcmp(path, "/rep-insb") == 0) __asm__ volatile("rep insb" : "+D"(at), "+c"(count) : "d"(kPort) : "memory");
    if (strcmp(path, "/rep-insl") == 0) __asm__ volatile("rep insl" : "+D"(at), "+c"(count) : "d"(kPort) : "memory");
    if (strcmp(path, "/out") == 0) __asm__ volatile("outl %%eax, %%dx" ::"d"(kOther), "a"(1));
    if (strcmp(path, "/outsb") == 0) __asm__ volatile("outsb" : "+S"(at) : "d"(kOther) : "memory");
    if (strcmp(path, "/rep-outsb") == 0) __asm__ volatile("rep outsb" : "+S"(at), "+c"(count) : "d"(kOther) : "memory");
}

int main(int argc, char **argv) {
    const int listener = listen_on(atoi(argv[argc - 1]));
    for (long requests = 1;; ++requests) {
        const int fd = accept(listener, NULL, NULL);
        char request[4096] = "", path[100] = "", reply[200];
        if (fd < 0 || read(fd, request, sizeof request - 1) < 0 || sscanf(request, "GET %99s", path) != 1) return 1;
        leave(path);
        const int n = snprintf(reply, sizeof reply, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n%ld\n", requests);
        if (write(fd, reply, (size_t)n) != n) return 1;
        close(fd);
    }
}
