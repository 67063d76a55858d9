// A signal leaves every register of the interrupted code alone: general ones, flags, the red zone,
// vector and x87 state; and a handler can change them through its context.
#include "transcript.h"

#include <cpuid.h>
#include <immintrin.h>
#include <sys/time.h>
#include <ucontext.h>

static volatile int handled;

__attribute__((target("avx2"))) static void clobber_avx(void) {
    __asm__ volatile("vpcmpeqd %%ymm0,%%ymm0,%%ymm0; vmovdqa %%ymm0,%%ymm1; vmovdqa %%ymm0,%%ymm7; vmovdqa %%ymm0,%%ymm15" ::
                         : "xmm0", "xmm1", "xmm7", "xmm15");
}

static void clobber(int signal) {
    (void)signal;
    handled++;
    __asm__ volatile("pcmpeqd %%xmm0,%%xmm0; movdqa %%xmm0,%%xmm1; movdqa %%xmm0,%%xmm7; movdqa %%xmm0,%%xmm15;"
                     "fninit; fldpi; fldpi; std; cld" ::
                         : "xmm0", "xmm1", "xmm7", "xmm15", "cc");
    if (__builtin_cpu_supports("avx2")) clobber_avx();
    _mm_setcsr(0x9fc0);
}

static void on(void (*handler)(int, siginfo_t *, void *), int signal) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    MUST(sigaction(signal, &action, NULL));
}

// void kill_and_look(uint64_t after[13], pid): fills the registers and the red zone, sends SIGUSR1
// and stores what they are then.
__asm__(".text; kill_and_look:"
        "push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15; push %rdi; mov %rsi, %rdi; mov $10, %esi;"
        "mov $0xb, %ebx; mov $0xb9, %ebp; mov $8, %r8d; mov $9, %r9d; mov $10, %r10d; mov $12, %r12d; mov $13, %r13d;"
        "mov $14, %r14d; mov $15, %r15d; mov $0xd, %edx; movq $0x5a5a, -8(%rsp); movq $0xa5a5, -128(%rsp);"
        "mov $62, %eax; stc; syscall;"
        "mov -8(%rsp), %rcx; mov -128(%rsp), %r11; pushfq; pop %rdi; xchg %rdi, (%rsp);"
        "mov %rax, (%rdi); mov %rbx, 8(%rdi); mov %rbp, 16(%rdi); mov %r8, 24(%rdi); mov %r9, 32(%rdi);"
        "mov %r10, 40(%rdi); mov %r12, 48(%rdi); mov %r13, 56(%rdi); mov %r14, 64(%rdi); mov %r15, 72(%rdi);"
        "mov %rdx, 80(%rdi); mov %rcx, 88(%rdi); mov %r11, 96(%rdi); pop %rax;"
        "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx; ret");
uint64_t kill_and_look(uint64_t *after, long pid);  // returns the flags

static void general(void) {
    section("general registers, flags and the red zone");
    uint64_t after[13], flags = kill_and_look(after, getpid());
    for (int i = 0; i < 13; i++) printf("%s%lx", i ? " " : "", after[i]);
    SAY(", carry %lu, direction %lu", flags & 1, flags >> 10 & 1);
}

static void vectors(void) {
    section("vector and x87 state");
    uint64_t in[4][2] = {{1, 2}, {3, 4}, {5, 6}, {7, 8}}, out[4][2];
    double ten = 10, kept = 0;
    unsigned before = _mm_getcsr(), after;
    long result;
    __asm__ volatile("movdqu (%[in]), %%xmm0; movdqu 16(%[in]), %%xmm1; movdqu 32(%[in]), %%xmm7; movdqu 48(%[in]), %%xmm15;"
                     "fldl %[ten]; syscall; fstpl %[kept];"
                     "movdqu %%xmm0, (%[out]); movdqu %%xmm1, 16(%[out]); movdqu %%xmm7, 32(%[out]); movdqu %%xmm15, 48(%[out])"
                     : "=a"(result), [kept] "=m"(kept)
                     : "a"(62L), "D"((long)getpid()), "S"((long)SIGUSR1), [in] "r"(in), [out] "r"(out), [ten] "m"(ten)
                     : "rcx", "r11", "xmm0", "xmm1", "xmm7", "xmm15", "st", "memory");
    after = _mm_getcsr();
    SAY("result %ld", result);
    CHECK(memcmp(in, out, sizeof in) == 0);
    CHECK(kept == 10.0);
    CHECK(before == after);
}

__attribute__((target("avx2"))) static int wide_survives(void) {
    uint64_t in[4] = {11, 22, 33, 44}, out[4] = {0};
    long result;
    __asm__ volatile("vmovdqu (%[in]), %%ymm7; syscall; vmovdqu %%ymm7, (%[out]); vzeroupper"
                     : "=a"(result)
                     : "a"(62L), "D"((long)getpid()), "S"((long)SIGUSR1), [in] "r"(in), [out] "r"(out)
                     : "rcx", "r11", "xmm7", "memory");
    return memcmp(in, out, sizeof in) == 0;
}

__attribute__((target("avx512f"))) static int widest_survives(void) {
    uint64_t in[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8] = {0}, mask = 0;
    long result;
    __asm__ volatile("vmovdqu64 (%[in]), %%zmm21; mov $0x5a, %%ecx; kmovw %%ecx, %%k3; syscall;"
                     "kmovw %%k3, %%ecx; mov %%rcx, %[mask]; vmovdqu64 %%zmm21, (%[out]); vzeroupper"
                     : "=a"(result), [mask] "=m"(mask)
                     : "a"(62L), "D"((long)getpid()), "S"((long)SIGUSR1), [in] "r"(in), [out] "r"(out)
                     : "rcx", "r11", "xmm21", "memory");
    return memcmp(in, out, sizeof in) == 0 && mask == 0x5a;
}

static void change(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    ucontext_t *c = context;
    SAY("  context: rbx %llx, xmm3 %x", c->uc_mcontext.gregs[REG_RBX], c->uc_mcontext.fpregs->_xmm[3].element[1]);
    c->uc_mcontext.fpregs->_xmm[3].element[0] = 0x600d;
    c->uc_mcontext.gregs[REG_RBX] = 0xbeef;
    c->uc_mcontext.gregs[REG_RAX] = 77;
}

static void changed(void) {
    section("a handler that changes registers");
    on(change, SIGUSR2);
    long result, rbx;
    uint32_t out[4] = {0}, in[4] = {1, 2, 3, 4};
    __asm__ volatile("mov $0x1234, %%rbx; movdqu (%[in]), %%xmm3; syscall; movdqu %%xmm3, (%[out]); mov %%rbx, %[rbx]"
                     : "=a"(result), [rbx] "=m"(rbx)
                     : "a"(62L), "D"((long)getpid()), "S"((long)SIGUSR2), [in] "r"(in), [out] "r"(out)
                     : "rbx", "rcx", "r11", "xmm3", "memory");
    SAY("result %ld, rbx %lx, xmm3 %x %x %x %x", result, rbx, out[0], out[1], out[2], out[3]);
}

// A computation that lives in registers, interrupted some hundred times by a handler that ruins them all.
__attribute__((noinline)) static double compute(void) {
    __asm__ volatile(""); // each call counts: not to be computed once only
    double a = 1, b = 0.5, c = 0.25;
    uint64_t x = 88172645463325252ull;
    for (int i = 0; i < 3000000; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        a = a * 0.999 + (double)(x & 255) * b;
        b = b * 0.9999 + 0.0001 * c;
        c = c + 1e-9 * a;
    }
    return a + b + c + (double)(x & 0xffff);
}

static void asynchronous(void) {
    section("a timer's signals in the middle of a computation");
    double expected = compute();
    struct sigaction action = {.sa_handler = clobber, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGALRM, &action, NULL));
    struct itimerval often = {.it_value = {0, 1000}, .it_interval = {0, 1000}};
    handled = 0;
    MUST(setitimer(ITIMER_REAL, &often, NULL));
    int same = 1;
    for (int i = 0; i < 1000 && (handled < 20 || i < 10); i++) same &= compute() == expected;
    MUST(setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL));
    CHECK(handled >= 20);
    CHECK(same);
}

int main(void) {
    struct sigaction action = {.sa_handler = clobber};
    MUST(sigaction(SIGUSR1, &action, NULL));
    general();
    vectors();
    CHECK(!__builtin_cpu_supports("avx2") || wide_survives());
    CHECK(!__builtin_cpu_supports("avx512f") || widest_survives());
    changed();
    asynchronous();
    CHECK(handled > 0);
}
