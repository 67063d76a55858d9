// What a program may do that ends it, one way an argument.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
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

int main(int argc, char** argv) {
    const char* mode = argc > 1 ? argv[1] : "";
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
            asm volatile(""); // without, the loop may be taken for one that ends
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
