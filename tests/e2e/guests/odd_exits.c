// An HTTP server whose requests end their machine in ways in which no program should: by instructions that KVM has not
// ended yet when it stops, with a vCPU in a state that no program has, or by what only a kernel may do. /kinds tells
// them; / answers with all that a program can see of its CPU, which must be what the first of all requests found.
#include "odd_exits.h"

#include <asm/prctl.h>
#include <immintrin.h>
#include <setjmp.h>
#include <sys/syscall.h>

#include "server.h"

// Where KVM ends an instruction in the next invocation, that one goes on behind it: it says so, by a system call that
// needs no stack.
__asm__(".pushsection .text\n"
        ".globl odd_told\nodd_told:\n"
        "  mov $1, %eax\n  mov $2, %edi\n  lea 1f(%rip), %rsi\n  mov $2f - 1f, %edx\n  syscall\n  ud2\n"
        "1: .ascii \"the next invocation runs this\\n\"\n2:\n"
        ".popsection");

char odd_page[4096] __attribute__((aligned(4096)));

// ---- what a program sees of its CPU ---------------------------------------------------------------------------------

static sigjmp_buf no_such_instruction;
static void on_ill(int signal) {
    (void)signal;
    siglongjmp(no_such_instruction, 1);
}

// Of XSAVE's components: those that no code here uses, where what another invocation left would stay.
static uint64_t components(void) {
    uint32_t a = 1, b = 0, c = 0, d = 0;
    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    if (!(c & 1u << 27)) return 0;
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static uint64_t sum(const unsigned char *from, size_t bytes) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; ++i) hash = (hash ^ from[i]) * 0x100000001b3u;
    return hash;
}

static long pkru(void) {
    if (sigsetjmp(no_such_instruction, 1)) return -1;
    uint32_t a, d;
    __asm__ volatile("rdpkru" : "=a"(a), "=d"(d) : "c"(0));
    return a;
}
static int has_tiles(void) { // AMX, in use
    static char config[64] __attribute__((aligned(64)));
    if (sigsetjmp(no_such_instruction, 1)) return -1;
    __asm__ volatile(".byte 0xc4, 0xe2, 0x79, 0x49, 0x00" ::"a"(config) : "memory"); // sttilecfg (%rax)
    return config[0];
}

static size_t look(char *out, size_t room) {
    static unsigned char area[16384] __attribute__((aligned(64)));
    unsigned short ds, es, fs, gs, ss, cs;
    __asm__ volatile("mov %%ds, %0\n\tmov %%es, %1\n\tmov %%fs, %2\n\tmov %%gs, %3\n\tmov %%ss, %4\n\tmov %%cs, %5"
                     : "=r"(ds), "=r"(es), "=r"(fs), "=r"(gs), "=r"(ss), "=r"(cs));
    unsigned long flags, fs_base = 0, gs_base = 0, itself;
    __asm__ volatile("pushfq\n\tpop %0" : "=r"(flags));
    __asm__ volatile("mov %%fs:0x10, %0" : "=r"(itself)); // glibc's thread control block names itself
    syscall(SYS_arch_prctl, ARCH_GET_FS, &fs_base);
    syscall(SYS_arch_prctl, ARCH_GET_GS, &gs_base);
    unsigned mxcsr;
    struct {
        unsigned short control, r0, status, r1, tag, r2;
        unsigned rest[4];
    } x87;
    __asm__ volatile("stmxcsr %0\n\tfnstenv %1\n\tfldenv %1" : "=m"(mxcsr), "=m"(x87));
    const uint64_t mask = components(), beyond = mask & ~(uint64_t)7;
    memset(area, 0, sizeof area);
    if (mask)
        __asm__ volatile("xsave %0" : "+m"(area) : "a"((uint32_t)beyond), "d"((uint32_t)(beyond >> 32)) : "memory");
    int files = 0;
    for (int fd = 0; fd < 100; ++fd) files += fcntl(fd, F_GETFD) >= 0;
    struct sigaction segv;
    sigaction(SIGSEGV, NULL, &segv);
    return (size_t)snprintf(out, room,
                            "selectors %x %x %x %x %x %x flags %lx fs %d gs %lx\nmxcsr %x x87 %x %x %x components %lx "
                            "%lx pkru %ld tiles %d\n"
                            "page %lx files %d handler %d\n",
                            ds, es, fs, gs, ss, cs, flags & ~0x8d5ul, fs_base == itself, gs_base, mxcsr, x87.control,
                            x87.status, x87.tag, (unsigned long)mask, (unsigned long)sum(area, sizeof area), pkru(),
                            has_tiles(), (unsigned long)sum((unsigned char *)odd_page, sizeof odd_page), files,
                            segv.sa_handler != SIG_DFL);
}

// ---- the server -----------------------------------------------------------------------------------------------------

static size_t names(char *out, size_t room) {
    size_t n = 0;
    for (const struct OddKind *kind = odd_kinds; kind->name; ++kind)
        n += (size_t)snprintf(out + n, room - n, "%s\n", kind->name);
    return n;
}

int main(int argc, char **argv) {
    signal(SIGILL, on_ill);
    const int listener = listen_on(atoi(argv[argc - 1]));
    for (long requests = 1;; ++requests) {
        const int fd = accept(listener, NULL, NULL);
        static char request[4096], path[100], body[8192], reply[9000];
        memset(request, 0, sizeof request);
        if (fd < 0 || read(fd, request, sizeof request - 1) < 0 || sscanf(request, "GET /%99s", path) < 0) return 1;
        for (const struct OddKind *kind = odd_kinds; kind->name; ++kind)
            if (strcmp(path, kind->name) == 0) {
                signal(SIGILL, SIG_DFL);
                memset(odd_page, 1, sizeof odd_page); // what the next must not see
                kind->leave();
                __asm__ volatile("ud2");
            }
        size_t bytes = strcmp(path, "kinds") == 0 ? names(body, sizeof body) : look(body, sizeof body);
        bytes += (size_t)snprintf(body + bytes, sizeof body - bytes, "requests %ld\n", requests);
        const int n = snprintf(reply, sizeof reply,
                               "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s", bytes, body);
        if (write(fd, reply, (size_t)n) != n) return 1;
        close(fd);
    }
}
