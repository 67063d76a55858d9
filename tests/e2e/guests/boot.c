// What a program may do before it listens: the argument says which.
#include "server.h"

#include <sys/mman.h>
#include <sys/wait.h>

__attribute__((noinline)) void crash_on_purpose(volatile int *where) { *where = 1; }

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "exit";
    printf("boot: %s\n", what);
    fflush(stdout);
    if (strcmp(what, "crash") == 0) crash_on_purpose((volatile int *)0xdead0);
    if (strcmp(what, "jump") == 0) ((void (*)(void))0xbad000)();
    if (strcmp(what, "abort") == 0) abort();
    if (strcmp(what, "term") == 0) raise(SIGTERM);
    if (strcmp(what, "sleep") == 0) sleep(1000);
    if (strcmp(what, "spin") == 0)
        for (volatile int forever = 1; forever;) {
        }
    if (strcmp(what, "fork") == 0) {
        pid_t child = fork();
        printf("fork: %s\n", child < 0 ? strerror(errno) : "made a child");
        if (child > 0) waitpid(child, NULL, 0);
        return child < 0 ? 21 : 0;
    }
    if (strcmp(what, "exec") == 0) {
        execl("/bin/true", "true", (char *)NULL);
        printf("exec: %s\n", strerror(errno));
        return 22;
    }
    if (strcmp(what, "memory") == 0) {
        for (;;) {
            char *p = mmap(NULL, 16 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (p == MAP_FAILED) {
                printf("memory: %s\n", strerror(errno));
                return 23;
            }
            memset(p, 1, 16 << 20);
        }
    }
    if (strcmp(what, "privileged") == 0) __asm__ volatile("mov $0x5a0, %dx; mov $1, %al; hlt; out %al, %dx");
    if (strcmp(what, "port") == 0) __asm__ volatile("mov $0x80, %dx; mov $1, %al; out %al, %dx");
    return argc > 2 ? atoi(argv[2]) : 3;
}
