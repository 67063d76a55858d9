// System calls as code: what the instruction does to registers, flags and the stack, who jumps to it, who unwinds through it, and
// code that is mapped, moved and unmapped; and CPUID. kvmserver leads the instruction before these elsewhere (docs/ARCHITECTURE.md).
#include "transcript.h"

#include <execinfo.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>

// A call of getppid as compilers write it, in a function of its own, with what is to be seen around it.
__asm__(".pushsection .text\n"
        ".balign 16\n nop; nop; nop; nop; nop; nop; nop; nop; nop; nop; nop; nop; nop; nop; nop; nop\n"
        ".fill 64, 1, 0x90\n"
        "look_at_call:\n" // rdi: where rcx, r11, rflags before, and the red zone after go
        "  movq $0x1122334455667788, %rax\n"
        "  movq %rax, -8(%rsp)\n  movq %rax, -128(%rsp)\n"
        "  pushfq\n  popq 16(%rdi)\n" // moves the red zone's first word: write it again
        "  movq %rax, -8(%rsp)\n"
        "  stc\n"
        "  movl $110, %eax\n"
        "  syscall\n"
        "after_call:\n"
        "  movq %rcx, 0(%rdi)\n  movq %r11, 8(%rdi)\n"
        "  movq -8(%rsp), %rcx\n  movq %rcx, 24(%rdi)\n  movq -128(%rsp), %rcx\n  movq %rcx, 32(%rdi)\n"
        "  setc 40(%rdi)\n"
        "  ret\n"
        ".fill 64, 1, 0x90\n"
        "jump_into_call:\n" // two ways to one SYSCALL: rdi 0 for getppid, else getpgid(0)
        "  testq %rdi, %rdi\n  jz 1f\n"
        "  xorl %edi, %edi\n  movl $121, %eax\n  jmp 2f\n"
        "1: movl $110, %eax\n"
        "2: syscall\n"
        "  ret\n"
        ".fill 64, 1, 0x90\n"
        "constant_like_call:\n" // 0f 05 in the middle of an instruction, behind what loads a number
        "  movl $110, %eax\n"
        "  movabsq $0x90909090909050f, %rax\n"
        "  cmpl $0x50f, 0(%rdi)\n"
        "  sete %al\n  movzbl %al, %eax\n"
        "  ret\n"
        ".fill 64, 1, 0x90\n"
        "load_before_call:\n" // rdi: what to read; the result of getppid, or -1 when on_fault went on there
        "  movl $110, %eax\n"
        "faulting_load:\n"
        "  movq (%rdi), %rsi\n"
        "  syscall\n"
        "  ret\n"
        "after_fault:\n"
        "  movq $-1, %rax\n"
        "  ret\n"
        ".fill 64, 1, 0x90\n"
        ".popsection\n");
struct seen { unsigned long rcx, r11, before, near_word, far_word; unsigned char carry; };
void look_at_call(struct seen *);
extern char after_call[];
long jump_into_call(long);
int constant_like_call(int *);
long load_before_call(long *);
extern char faulting_load[], after_fault[];

static void registers(void) {
    section("registers, flags and the red zone");
    struct seen s;
    memset(&s, 0, sizeof(s));
    look_at_call(&s);
    CHECK(s.rcx == (unsigned long)after_call);
    CHECK(s.r11 == (s.before | 1)); // the carry was set in between
    CHECK(s.carry == 1);
    CHECK(s.near_word == 0x1122334455667788 && s.far_word == 0x1122334455667788);
    CHECK(jump_into_call(0) == getppid());
    CHECK(jump_into_call(1) == getpgid(0));
    int version = 0x50f, other = 0x110;
    CHECK(constant_like_call(&version) == 1);
    CHECK(constant_like_call(&other) == 0);
}

static long fault_rax;
static int fault_at_load;
static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)signal;
    ucontext_t *u = context;
    fault_at_load = u->uc_mcontext.gregs[REG_RIP] == (greg_t)faulting_load && info->si_addr == (void *)8;
    fault_rax = u->uc_mcontext.gregs[REG_RAX];
    u->uc_mcontext.gregs[REG_RIP] = (greg_t)after_fault;
}

static void fault(void) {
    section("a fault between the number and the call");
    const struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    MUST(sigaction(SIGSEGV, &action, NULL));
    long word = 0;
    CHECK(load_before_call(&word) == getppid());
    CHECK(load_before_call((long *)8) == -1);
    CHECK(fault_at_load);
    CHECK(fault_rax == SYS_getppid);
}

static int caller(void);
static volatile sig_atomic_t handled;
static int at_a_system_call, unwound_to_caller;
static int ends[2];

static void on_timer(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    const unsigned char *next = (const unsigned char *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    // Once is enough: on a slow host a signal may come before the call, or after it.
    at_a_system_call |= (next[-2] == 0x0f && next[-1] == 0x05) || (next[0] == 0x0f && next[1] == 0x05); // or to be made again
    void *frames[32];
    const int count = backtrace(frames, 32);
    for (int i = 0; i < count; ++i)
        unwound_to_caller |= (char *)frames[i] > (char *)caller && (char *)frames[i] < (char *)caller + 256;
    if (++handled == 3)
        MUST(write(ends[1], "x", 1));
}

__attribute__((noinline)) static int caller(void) {
    char byte = 0;
    const ssize_t n = read(ends[0], &byte, 1);
    return n == 1 ? byte : -errno;
}

// A read that is interrupted again and again, with a handler that wants to know where.
static void interrupted(int flags) {
    section(flags & SA_RESTART ? "interrupted, restarted" : "interrupted");
    struct sigaction action = {.sa_sigaction = on_timer, .sa_flags = SA_SIGINFO | flags};
    MUST(sigaction(SIGALRM, &action, NULL));
    MUST(pipe(ends));
    handled = at_a_system_call = unwound_to_caller = 0;
    const struct itimerval every = {.it_value.tv_usec = 5000, .it_interval.tv_usec = 5000}, never = {0};
    MUST(setitimer(ITIMER_REAL, &every, NULL));
    int result, times = 0;
    while ((result = caller()) == -EINTR)
        ++times;
    MUST(setitimer(ITIMER_REAL, &never, NULL));
    CHECK(result == 'x');
    CHECK(handled >= 3);
    CHECK((times > 0) == !(flags & SA_RESTART));
    CHECK(at_a_system_call);
    CHECK(unwound_to_caller);
    MUST(close(ends[0]));
    MUST(close(ends[1]));
}

static void clean_up(void *text) { SAY("%s", (const char *)text); }

static void *reader(void *fd) {
    char byte;
    pthread_cleanup_push(clean_up, "cleaned up");
    MUST(read(*(int *)fd, &byte, 1));
    pthread_cleanup_pop(0);
    return NULL;
}

static void cancelled(void) {
    section("a thread that reads is cancelled");
    int fds[2];
    MUST(pipe(fds));
    pthread_t thread;
    pthread_create(&thread, NULL, reader, &fds[0]);
    sleep_ms(20);
    void *result;
    pthread_cancel(thread);
    pthread_join(thread, &result);
    CHECK(result == PTHREAD_CANCELED);
}

typedef long (*function)(long);

static void mapped_code(void) {
    section("code from a file: mapped, moved, written to, unmapped");
    static unsigned char code[4096] = {[0 ... 4095] = 0x90};
    static const unsigned char call[] = {0xb8, 110, 0, 0, 0, 0x0f, 0x05, 0xc3}; // mov $getppid, %eax; syscall; ret
    memcpy(code + 80, call, sizeof(call));
    char path[] = "/tmp/system_call_code.XXXXXX";
    const int fd = MUST(mkstemp(path));
    MUST(unlink(path));
    MUST(write(fd, code, sizeof(code)));
    MUST(write(fd, code, sizeof(code)));
    char *const room = mmap(NULL, 4 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); // nothing else is in there
    char *at = mmap(room + (2 << 20), 8192, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd, 0);
    CHECK(((function)(at + 80))(0) == getppid());
    CHECK(((function)(at + 4096 + 80))(0) == getppid());
    MUST(mprotect(at, 8192, PROT_READ | PROT_WRITE)); // as for relocations in code
    CHECK(memcmp(at, code, sizeof(code)) == 0);
    at[81] = 121; // getpgid
    MUST(mprotect(at, 8192, PROT_READ | PROT_EXEC));
    CHECK(((function)(at + 80))(0) == getpgid(0));
    MUST(mprotect(at, 8192, PROT_READ | PROT_WRITE));
    at[81] = 110;
    MUST(mprotect(at, 8192, PROT_READ | PROT_EXEC));
    char *moved = mremap(at, 8192, 8192, MREMAP_MAYMOVE | MREMAP_FIXED, at - (1 << 20));
    CHECK(moved == at - (1 << 20));
    CHECK(memcmp(moved, code, sizeof(code)) == 0);
    CHECK(((function)(moved + 80))(0) == getppid());
    MUST(mprotect(moved, 8192, PROT_READ | PROT_WRITE));
    moved[81] = 121; // getpgid
    MUST(mprotect(moved, 8192, PROT_READ | PROT_EXEC));
    CHECK(((function)(moved + 80))(0) == getpgid(0));
    MUST(munmap(moved, 8192));
    // Copied away, other memory put in its place, copied back: what programs do that put their code on large pages.
    at = mmap(NULL, 8192, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    memcpy(code, at, 4096);
    MUST((long)mmap(at, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    memcpy(at, code, 4096);
    MUST(mprotect(at, 8192, PROT_READ | PROT_EXEC));
    CHECK(((function)(at + 80))(0) == getppid());
    int right = 0;
    for (int i = 0; i < 2000; ++i) {
        at = mmap(NULL, 8192, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
        right += at != MAP_FAILED && ((function)(at + 80))(0) == getppid();
        MUST(munmap(at, i % 2 ? 8192 : 4096));
        if (i % 2 == 0)
            MUST(munmap(at + 4096, 4096));
    }
    CHECK(right == 2000);
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned long begin, end, executable = 0;
    char right_to_run;
    for (char line[512]; fgets(line, sizeof(line), maps);)
        if (sscanf(line, "%lx-%lx %*2c%c", &begin, &end, &right_to_run) == 3 && right_to_run == 'x')
            executable += end - begin;
    fclose(maps);
    CHECK(executable < (16 << 20)); // nothing stays behind of what was unmapped
}

#define LEAVES(X) X(0) X(1) X(2) X(4) X(7) X(0xd) X(0x16) X(0x40000000) X(0x80000000) X(0x80000001) X(0x80000008)
// rdi: eax, ebx, ecx, edx and the flags after, the index in ecx before. All else is as it was.
#define LEAF(n)                                                                                                        \
    __asm__(".pushsection .text\n .fill 64, 1, 0x90\n leaf_" #n ":\n"                                                  \
            "  pushq %rbx\n  movq $-1, %rbx\n  movq $-1, %rdx\n  movl 16(%rdi), %ecx\n  stc\n  movl $" #n ", %eax\n"     \
            "  cpuid\n"                                                                                                  \
            "  setc 24(%rdi)\n  xorq %rsi, %rsi\n  movq %rax, %rsi\n  shrq $32, %rsi\n  orq %rbx, %rsi\n  shrq $32, %rsi\n" \
            "  movq %rsi, 32(%rdi)\n"                                                                                    \
            "  movl %eax, 0(%rdi)\n  movl %ebx, 4(%rdi)\n  movl %ecx, 8(%rdi)\n  movl %edx, 12(%rdi)\n"                   \
            "  popq %rbx\n  ret\n .popsection\n");                                                                      \
    void leaf_##n(struct leaf *);
struct leaf { uint32_t a, b, c, d, index, unused; uint64_t carry, upper; };
LEAVES(LEAF)

static void cpuid(void) {
    section("CPUID, the same in code that no file has");
    static const unsigned char code[] = {0x53, 0x89, 0xf8, 0x89, 0xd1, 0x0f, 0xa2, // push rbx; mov eax, edi; mov ecx, edx; cpuid
                                         0x89, 0x06, 0x89, 0x5e, 4, 0x89, 0x4e, 8, 0x89, 0x56, 12, 0x5b, 0xc3};
    unsigned char *own = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(own, code, sizeof(code));
    int same = 0, right = 0, all = 0;
#define COMPARE(n)                                                                                                     \
    for (uint32_t index = 0; index < 3; ++index, ++all) {                                                              \
        struct leaf seen = {.index = index, .carry = 0}, plain = {0};                                                  \
        leaf_##n(&seen);                                                                                               \
        leaf_##n(&seen); /* the second time it is known */                                                             \
        ((void (*)(uint32_t, struct leaf *, uint32_t))(void *)own)(n, &plain, index);                                  \
        if (n == 1) seen.b &= 0xffffff, plain.b &= 0xffffff; /* which CPU it is */                                     \
        same += seen.a == plain.a && seen.b == plain.b && seen.c == plain.c && seen.d == plain.d;                      \
        right += seen.carry == 1 && seen.upper == 0;                                                                   \
    }
    LEAVES(COMPARE)
    CHECK(same == all);
    CHECK(right == all);
}

int main(void) {
    registers();
    cpuid();
    fault();
    interrupted(0);
    interrupted(SA_RESTART);
    cancelled();
    mapped_code();
    return 0;
}
