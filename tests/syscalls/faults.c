// Signals of the processor: which one, with which code and address.
#include "fault.h"

#include <pthread.h>
#include <sys/mman.h>

static volatile int zero;
static void divide(void) { __asm__ volatile("xorl %%edx, %%edx; movl $1, %%eax; idivl %0" ::"m"(zero) : "eax", "edx", "cc"); }

static void *overflow(void *arg) {
    volatile char frame[4096];
    frame[0] = *(char *)arg;
    return frame[0] == 7 ? NULL : overflow((void *)frame);
}

static sigjmp_buf again;
static volatile int depth;
static void nested(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
    if (++depth == 1) {
        *(volatile int *)16 = 1; // SIGSEGV in the handler of SIGFPE
    }
    siglongjmp(again, depth);
}

int main(void) {
    fault_catch();
    section("memory");
    char *none = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    try_read("PROT_NONE", none + 5);
    try_write("PROT_NONE, second page", none + 4096 + 9);
    MUST(mprotect(none, 4096, PROT_READ));
    try_read("PROT_READ", none + 5);
    try_write("PROT_READ written", none + 5);
    MUST(mprotect(none, 4096, PROT_READ | PROT_WRITE));
    try_write("writable", none + 5);
    MUST(mprotect(none, 4096, PROT_READ));
    try_write("read-only again", none + 6);
    MUST(munmap(none, 4096));
    try_read("unmapped", none + 5);
    try_read("null", (char *)0);
    try_write("low", (char *)4096);
    TRY("jump to data", none + 4096, MUST(mprotect(none + 4096, 4096, PROT_READ | PROT_WRITE)); ((void (*)(void))(none + 4096))());
    TRY("jump to null", NULL, ((void (*)(void))(uintptr_t)zero)());
    try_read("not canonical", (char *)0x8000000000000000ul);
    TRY("jump to what is not canonical", NULL, ((void (*)(void))0x8000000000000000ul)());
    section("instructions");
    TRY("division", NULL, divide());
    TRY("ud2", NULL, __asm__ volatile("ud2"));
    TRY("int3", NULL, __asm__ volatile("int3"));
    TRY("hlt", NULL, __asm__ volatile("hlt"));
    // Not "in": where a machine needs IOPL 3 (docs/HOSTS.md) a foreign port ends it, as DESIGN.md has it.
    TRY("rdmsr", NULL, __asm__ volatile("rdmsr" ::"c"(0x10) : "rax", "rdx"));
    TRY("SSE exception", NULL, ({
            unsigned control = 0x1f80 & ~(1u << 9); // division by zero
            __asm__ volatile("ldmxcsr %0" ::"m"(control));
            volatile double d = 1.0, e = zero;
            d = d / e;
        }));
    TRY("x87 exception", NULL, ({
            unsigned short control = 0x37f & ~4; // division by zero
            __asm__ volatile("fninit; fldcw %0; fld1; fldz; fdivrp; fwait; fninit" ::"m"(control) : "st");
        }));
    __asm__ volatile("fninit");
    section("stack");
    stack_t alternate = {.ss_sp = malloc(65536), .ss_size = 65536};
    MUST(sigaltstack(&alternate, NULL));
    struct sigaction action = {.sa_sigaction = fault_handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    MUST(sigaction(SIGSEGV, &action, NULL));
    TRY("overflow", NULL, overflow((char[1]){1}));
    section("a fault in a handler");
    action.sa_sigaction = nested;
    MUST(sigaction(SIGSEGV, &action, NULL));
    MUST(sigaction(SIGFPE, &action, NULL));
    int how = sigsetjmp(again, 1);
    if (how == 0) divide();
    SAY("depth %d", how);
    section("many times");
    action.sa_sigaction = fault_handler;
    MUST(sigaction(SIGSEGV, &action, NULL));
    static volatile int caught;
    caught = 0;
    for (volatile int i = 0; i < 3000; i++) {
        if (sigsetjmp(fault_return, 1) == 0)
            *(volatile int *)(none + 64) = 1;
        else
            caught++;
    }
    SAY("caught %d", caught);
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 3000; i++) {
        page[1] = 1;
        madvise(page, 4096, MADV_DONTNEED);
    }
    CHECK(page[1] == 0);
    return 0;
}
