// Code from a file, mapped before the image is taken: run, written to and moved in each invocation.
#include "server.h"

#include <sys/mman.h>

typedef long (*function)(long);
static char *code;

static void reply(const char *line, char *out, size_t size) {
    (void)line;
    const int calls = ((function)(code + 80))(0) == getppid() && ((function)(code + 4096 + 80))(0) == getppid();
    const int own = code[80] == (char)0xb8; // mov $n, %eax, and not what it is when nobody writes to it
    mprotect(code, 8192, PROT_READ | PROT_WRITE);
    const int as_in_file = code[80] == (char)0xb8 && code[85] == 0x0f;
    code[81] = 121; // getpgid
    mprotect(code, 8192, PROT_READ | PROT_EXEC);
    const int written = ((function)(code + 80))(0) == getpgid(0);
    char *moved = mremap(code, 8192, 8192, MREMAP_MAYMOVE | MREMAP_FIXED, code - (1 << 20));
    const int runs = moved != MAP_FAILED && ((function)(moved + 80))(0) == getpgid(0) && ((function)(moved + 4096 + 80))(0) == getppid();
    snprintf(out, size, "calls=%d led=%d file=%d written=%d moved=%d\n", calls, !own, as_in_file, written, runs);
}

int main(int argc, char **argv) {
    static unsigned char text[8192];
    static const unsigned char call[] = {0xb8, 110, 0, 0, 0, 0x0f, 0x05, 0xc3}; // mov $getppid, %eax; syscall; ret
    memset(text, 0x90, sizeof text);
    memcpy(text + 80, call, sizeof call);
    memcpy(text + 4096 + 80, call, sizeof call);
    char path[] = "/tmp/code.XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0 || unlink(path) < 0 || write(fd, text, sizeof text) != sizeof text) return 1;
    code = mmap(NULL, sizeof text, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    serve(listen_on(argc > 1 ? atoi(argv[1]) : 8080), reply);
}
