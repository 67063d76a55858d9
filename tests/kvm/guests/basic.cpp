// What a program may do that ends it, one way an argument.
#include <cpuid.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

extern "C" __attribute__((noinline)) void crash_here() { *reinterpret_cast<volatile int*>(0x1234) = 1; }

static volatile int depth;
static __attribute__((noinline)) int recurse(int n) {
    volatile char room[512];
    room[n % 512] = static_cast<char>(n);
    depth = n;
    return n < 0 ? 0 : recurse(n + 1) + room[n % 512];
}

static volatile long progress;
static void* count(void*) {
    for (;;)
        progress = progress + 1;
}

// Vector and floating-point state over system calls in which others run, and over signal handlers.
static volatile int handled, frame_has_xstate;
static void spoil(int, siginfo_t*, void* context) {
    asm volatile("pxor %%xmm9, %%xmm9" ::: "xmm9");
    frame_has_xstate = static_cast<int>(static_cast<ucontext_t*>(context)->uc_flags & 1);
    handled = handled + 1;
}

static bool keeps(long pattern, long call, long a, long b, long c) {
    alignas(16) const long in[2] = {pattern, ~pattern};
    alignas(16) long out[2];
    const unsigned mxcsr = 0x1f80 | (static_cast<unsigned>(pattern) & 0x6000), usual_mxcsr = 0x1f80;
    const unsigned short control = static_cast<unsigned short>(0x37f | (pattern & 0xc00)), usual_control = 0x37f;
    unsigned mxcsr_after;
    unsigned short control_after;
    long result = call;
    asm volatile("movdqa %[in], %%xmm9\n ldmxcsr %[mxcsr]\n fldcw %[control]\n syscall\n"
                 "movdqa %%xmm9, %[out]\n stmxcsr %[mxcsr_after]\n fnstcw %[control_after]\n"
                 "ldmxcsr %[usual_mxcsr]\n fldcw %[usual_control]"
                 : "+a"(result), [out] "=m"(out), [mxcsr_after] "=m"(mxcsr_after), [control_after] "=m"(control_after)
                 : "D"(a), "S"(b), "d"(c), [in] "m"(in), [mxcsr] "m"(mxcsr), [control] "m"(control),
                   [usual_mxcsr] "m"(usual_mxcsr), [usual_control] "m"(usual_control)
                 : "rcx", "r11", "xmm9", "memory");
    return result == 0 && out[0] == in[0] && out[1] == in[1] && mxcsr_after == mxcsr && control_after == control;
}

static void* keep_vectors(void* failed) {
    for (long i = 0; i < 300; ++i) {
        const unsigned long mixed = static_cast<unsigned long>(i) * 0x123456789abcdef + (pthread_self() >> 12);
        const long pattern = static_cast<long>(mixed);
        if (!keeps(pattern, SYS_sched_yield, 0, 0, 0) || !keeps(pattern, SYS_tgkill, getpid(), gettid(), SIGUSR1))
            *static_cast<volatile bool*>(failed) = true;
    }
    return nullptr;
}

// Bits: something was not kept, CPUID says the other thing about XSAVE, signal frames do.
static int vectors(bool xsave) {
    struct sigaction action {};
    action.sa_sigaction = spoil;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGUSR1, &action, nullptr);
    bool failed = false;
    pthread_t threads[3];
    for (pthread_t& thread : threads)
        pthread_create(&thread, nullptr, keep_vectors, &failed);
    for (pthread_t& thread : threads)
        pthread_join(thread, nullptr);
    unsigned a, b, c, d;
    __cpuid(1, a, b, c, d);
    const bool told = (c & bit_OSXSAVE) != 0;
    if (failed || handled != 900)
        return 1;
    return (told != xsave ? 2 : 0) | ((frame_has_xstate != 0) != xsave ? 4 : 0);
}

int main(int argc, char** argv) {
    const char* mode = argc > 1 ? argv[1] : "";
    if (!std::strcmp(mode, "vectors"))
        return vectors(!std::strcmp(argv[2], "xsave"));
    if (!std::strcmp(mode, "exit"))
        return std::atoi(argv[2]);
    if (!std::strcmp(mode, "crash"))
        crash_here();
    if (!std::strcmp(mode, "abort"))
        std::abort();
    if (!std::strcmp(mode, "kernel")) // the CPU's own tables
        return *reinterpret_cast<volatile char*>(0x7ff004000000);
    if (!std::strcmp(mode, "recurse"))
        return recurse(0);
    if (!std::strcmp(mode, "bomb"))
        for (;;)
            std::memset(mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, 1 << 20);
    if (!std::strcmp(mode, "spin"))
        for (;;)
            asm volatile("");        // without, the loop may be taken for one that ends
    if (!std::strcmp(mode, "calls")) // each leaves the machine
        for (;;) {
            struct stat info;
            stat("/", &info);
        }
    if (!std::strcmp(mode, "fair")) { // one thread that computes, one that leaves the machine all the time
        pthread_t thread;
        pthread_create(&thread, nullptr, count, nullptr);
        struct stat info;
        while (progress < 100)
            stat("/", &info);
        return 7;
    }
    if (!std::strcmp(mode, "faults")) // each page once: an exit each
        for (unsigned long at = 0;; ++at) {
            void* p = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            *static_cast<volatile char*>(p) = 1;
            munmap(p, 4096);
        }
    return 99;
}
