// A server that tells, for each connection, all that it can see of itself, then spoils as much of it as it can.
//   request: u32 seed, u32 way to end; reply: u64 facts[]
#include <arpa/inet.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/mman.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/abi/layout.hpp"

using u64 = unsigned long;
using namespace tinykvm;

enum End { kReply, kExit, kCrash, kSpin, kBomb, kScribble, kSilent, kPort, kHang, kTrap, kIn, kEnds };

static u64 state;
static u64 any() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

constexpr u64 kPage = 4096;
static int counter;
static bool must_answer; // then no thread may compute for ever
static unsigned char data[64 << 10] = {1, 2, 3};
static unsigned char bss[256 << 10];
static unsigned char *heap_large, *heap_small, *area, *read_only, *hidden, *file_map, *shared_map;
static int file_fd, probe_pipe[2];
constexpr u64 kAreaPages = 40;
static unsigned char* const far_away = reinterpret_cast<unsigned char*>(0x300000000000);

static u64 sum(const unsigned char* from, u64 bytes) {
    u64 h = 0xcbf29ce484222325;
    for (u64 i = 0; i < bytes; i += 8) {
        u64 v;
        std::memcpy(&v, from + i, 8);
        h = (h ^ v) * 0x100000001b3;
    }
    return h;
}

// Whether a page can be read, without touching it.
static u64 readable(const void* at) {
    char byte;
    if (write(probe_pipe[1], at, 1) != 1)
        return 0;
    (void)!read(probe_pipe[0], &byte, 1);
    return 1;
}

static void on_signal(int) {}
static void on_other(int) {}

struct Vectors {
    alignas(16) unsigned char xmm[8][16];
};

// accept(2) with a pattern in the vector registers; what is in them afterwards.
static int accept_with_vectors(int listener, const Vectors& in, Vectors& out) {
    long result;
    asm volatile(
        "movdqa 0(%[in]), %%xmm8\n movdqa 16(%[in]), %%xmm9\n movdqa 32(%[in]), %%xmm10\n movdqa 48(%[in]), %%xmm11\n"
        "movdqa 64(%[in]), %%xmm12\n movdqa 80(%[in]), %%xmm13\n movdqa 96(%[in]), %%xmm14\n movdqa 112(%[in]), "
        "%%xmm15\n"
        "syscall\n"
        "movdqa %%xmm8, 0(%[out])\n movdqa %%xmm9, 16(%[out])\n movdqa %%xmm10, 32(%[out])\n movdqa %%xmm11, "
        "48(%[out])\n"
        "movdqa %%xmm12, 64(%[out])\n movdqa %%xmm13, 80(%[out])\n movdqa %%xmm14, 96(%[out])\n movdqa %%xmm15, "
        "112(%[out])\n"
        : "=a"(result)
        : "a"(SYS_accept), "D"(listener), "S"(0), "d"(0), [in] "r"(&in), [out] "r"(&out)
        : "rcx", "r11", "memory", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
    return static_cast<int>(result);
}

static u64 selectors() {
    unsigned short ds, es, fs, gs, cs, ss;
    asm volatile("mov %%ds, %0\n mov %%es, %1\n mov %%fs, %2\n mov %%gs, %3\n mov %%cs, %4\n mov %%ss, %5"
                 : "=r"(ds), "=r"(es), "=r"(fs), "=r"(gs), "=r"(cs), "=r"(ss));
    return ds | u64{es} << 8 | u64{fs} << 16 | u64{gs} << 24 | u64{cs} << 32 | u64{ss} << 40;
}

static u64 facts[40];
static unsigned facts_count;

static void look(const Vectors& vectors) {
    facts_count = 0;
    const auto say = [](u64 value) { facts[facts_count++] = value; };
    say(static_cast<u64>(++counter));
    say(sum(data, sizeof(data)));
    say(sum(bss, sizeof(bss)));
    say(sum(heap_large, 1 << 20));
    say(sum(heap_small, 64));
    say(reinterpret_cast<u64>(sbrk(0))); // 5
    say(sum(area, kAreaPages * kPage));
    say(sum(read_only, 4 * kPage));
    say(readable(hidden));
    say(sum(file_map, 2 * kPage));
    say(sum(shared_map, 2 * kPage)); // 10
    say(static_cast<u64>(lseek(file_fd, 0, SEEK_CUR)));
    char path[256] = {};
    (void)!getcwd(path, sizeof(path));
    say(sum(reinterpret_cast<unsigned char*>(path), sizeof(path)));
    struct sigaction action {};
    sigaction(SIGUSR1, nullptr, &action);
    say(reinterpret_cast<u64>(action.sa_handler));
    sigset_t mask;
    sigprocmask(SIG_SETMASK, nullptr, &mask);
    u64 bits;
    std::memcpy(&bits, &mask, 8);
    say(bits);
    u64 open_fds = 0; // 15
    for (int fd = 0; fd < 64; ++fd)
        open_fds |= u64{fcntl(fd, F_GETFD) >= 0} << fd;
    say(open_fds);
    say(selectors());
    u64 fs_base, gs_base;
    asm volatile("rdfsbase %0\n rdgsbase %1" : "=r"(fs_base), "=r"(gs_base));
    say(fs_base);
    say(gs_base);
    unsigned mxcsr;
    unsigned short control;
    asm volatile("stmxcsr %0\n fnstcw %1" : "=m"(mxcsr), "=m"(control));
    say(mxcsr);
    say(control); // 20
    say(sum(&vectors.xmm[0][0], sizeof(vectors)));
    u64 flags;
    asm volatile("pushfq\n popq %0" : "=r"(flags));
    say(flags & 0x40400); // AC, DF
    say(alarm(0));
    const mode_t old_umask = umask(0);
    umask(old_umask);
    say(old_umask);
    char name[16] = {}; // 25
    prctl(PR_GET_NAME, name);
    say(sum(reinterpret_cast<unsigned char*>(name), 16));
    stack_t stack{};
    sigaltstack(nullptr, &stack);
    say(reinterpret_cast<u64>(stack.ss_sp) | static_cast<u64>(stack.ss_flags));
    say(readable(far_away) | readable(far_away + (1ul << 30)) << 1);
    struct stat info;
    say(static_cast<u64>(fcntl(file_fd, F_GETFL)) | static_cast<u64>(fcntl(file_fd, F_GETFD)) << 32);
    say(static_cast<u64>(fstat(file_fd, &info)));
}

static void* blocked_thread(void*) {
    for (;;)
        pause();
}
static void* busy_thread(void*) {
    for (u64 i = 0;; ++i)
        const_cast<volatile unsigned char*>(bss)[i % sizeof(bss)] = static_cast<unsigned char>(i);
}

static unsigned char* page_of(unsigned char* base, u64 pages) { return base + any() % pages * kPage; }

// Writes where it is allowed.
static void poke(unsigned char* at) {
    if (write(probe_pipe[1], at, 1) != 1)
        return;
    if (read(probe_pipe[0], at, 1) == 1) // EFAULT when it is read-only
        *at = static_cast<unsigned char>(any());
}

static void spoil_once() {
    const u64 n = 1 + any() % 6;
    switch (any() % 34) {
    case 0: data[any() % sizeof(data)] = static_cast<unsigned char>(any()); break;
    case 1: bss[any() % sizeof(bss)] = static_cast<unsigned char>(any()); break;
    case 2: heap_large[any() % (1 << 20)] ^= 1; break;
    case 3: heap_small[any() % 64] ^= 1; break;
    case 4: poke(page_of(area, kAreaPages) + any() % kPage); break;
    case 5: (void)!sbrk(static_cast<long>(any() % (1 << 20))); break;
    case 6: { // a new mapping over image pages
        auto* p = mmap(page_of(area, kAreaPages - 6), n * kPage, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        std::memset(p, 0x5a, n * kPage);
        break;
    }
    case 7: munmap(page_of(area, kAreaPages - 6), n * kPage); break;
    case 8: {
        unsigned char* p = page_of(area, kAreaPages - 6);
        poke(p);
        mprotect(p, n * kPage, PROT_NONE);
        break;
    }
    case 9: {
        unsigned char* p = page_of(area, kAreaPages - 6);
        if (mprotect(p, n * kPage, PROT_READ | PROT_WRITE) == 0)
            poke(p + any() % kPage);
        break;
    }
    case 10: { // written, moved away, not touched there
        unsigned char* p = page_of(area, kAreaPages - 6);
        poke(p);
        mremap(p, kPage, kPage, MREMAP_MAYMOVE | MREMAP_FIXED, far_away + any() % 16 * kPage);
        break;
    }
    case 11: {
        unsigned char* p = page_of(area, kAreaPages - 6);
        poke(p);
        mremap(p, kPage, kPage, MREMAP_MAYMOVE | MREMAP_FIXED, far_away + (1ul << 30));
        break;
    }
    case 12: { // moved within
        unsigned char* p = page_of(area, kAreaPages - 6);
        poke(p);
        mremap(p, kPage, kPage, MREMAP_MAYMOVE | MREMAP_FIXED, page_of(area, kAreaPages - 6));
        break;
    }
    case 13: madvise(page_of(area, kAreaPages - 6), n * kPage, MADV_DONTNEED); break;
    case 14: madvise(page_of(area, kAreaPages - 6), n * kPage, 18 /* WIPEONFORK */); break;
    case 15:
        mprotect(read_only, 4 * kPage, PROT_READ | PROT_WRITE);
        poke(read_only + any() % (4 * kPage));
        break;
    case 16:
        mprotect(hidden, kPage, PROT_READ | PROT_WRITE);
        *hidden = 3;
        break;
    case 17: poke(file_map + any() % (2 * kPage)); break;
    case 18: shared_map[any() % (2 * kPage)] ^= 1; break;
    case 19: lseek(file_fd, static_cast<long>(any() % 10000), SEEK_SET); break;
    case 20: (void)!chdir(any() % 2 ? "/tmp" : "/etc"); break;
    case 21: signal(SIGUSR1, on_other); break;
    case 22: {
        sigset_t mask;
        sigemptyset(&mask);
        sigaddset(&mask, SIGUSR2);
        sigprocmask(SIG_BLOCK, &mask, nullptr);
        raise(SIGUSR2);
        break;
    }
    case 23: dup2(file_fd, 30 + static_cast<int>(any() % 20)); break;
    case 24: (void)!open("/etc", O_RDONLY); break;
    case 25: close(file_fd); break;
    case 26:
        asm volatile("mov %0, %%ds\n mov %0, %%es" ::"r"(static_cast<unsigned short>(any() % 2 ? 0 : 0x2b)));
        break;
    case 27: asm volatile("wrgsbase %0" ::"r"(any() & 0x7fffffffffff)); break;
    case 28: {
        const unsigned mxcsr = 0x3f80;
        const unsigned short control = 0x27f;
        asm volatile("ldmxcsr %0\n fldcw %1\n pcmpeqb %%xmm8, %%xmm8\n pcmpeqb %%xmm15, %%xmm15" ::"m"(mxcsr),
                     "m"(control)
                     : "xmm8", "xmm15");
        break;
    }
    case 29:
        alarm(1000);
        umask(0123);
        prctl(PR_SET_NAME, "spoilt");
        break;
    case 30: {
        static char stack[1 << 15];
        stack_t s{};
        s.ss_sp = stack;
        s.ss_size = sizeof(stack);
        sigaltstack(&s, nullptr);
        break;
    }
    case 31: {
        (void)eventfd(5, 0);
        const int timer = timerfd_create(CLOCK_MONOTONIC, 0);
        itimerspec when{{0, 1000000}, {0, 1000000}};
        timerfd_settime(timer, 0, &when, nullptr);
        const int epoll = epoll_create1(0);
        epoll_event event{};
        event.events = EPOLLIN;
        epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &event);
        int fds[2];
        (void)!pipe(fds);
        (void)!write(fds[1], data, 100);
        break;
    }
    case 32: {
        pthread_t thread;
        pthread_create(&thread, nullptr, any() % 4 || must_answer ? blocked_thread : busy_thread, nullptr);
        break;
    }
    case 33: {
        auto* p = static_cast<unsigned char*>(
            mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        if (p != MAP_FAILED)
            std::memset(p, 0x77, any() % (1 << 20));
        break;
    }
    }
}

static void end(unsigned how, int connection) {
    switch (how) {
    case kReply:
        (void)!send(connection, facts, facts_count * sizeof(u64), MSG_NOSIGNAL);
        close(connection);
        break;
    case kExit: _exit(3);
    case kCrash: *reinterpret_cast<volatile int*>(8) = 1; break;
    case kSpin:
        for (;;)
            asm volatile("");
    case kBomb:
        for (;;) {
            void* p = mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (p != MAP_FAILED)
                std::memset(p, 1, 1 << 20);
        }
    case kScribble: {
        const auto& kernel = *reinterpret_cast<const abi::KernelHeader*>(layout::kKernelImage);
        for (int i = 0; i < 200; ++i)
            reinterpret_cast<volatile u64*>(kernel.data_begin)[any() % ((kernel.data_end - kernel.data_begin) / 8)] =
                any();
        for (int i = 0; i < 50; ++i)
            reinterpret_cast<volatile u64*>(layout::kConnTable)[any() % 4096] = any();
        for (int i = 0; i < 20; ++i)
            reinterpret_cast<volatile u64*>(layout::kShared)[any() % (sizeof(abi::Shared) / 8)] = any();
        for (int i = 0; i < 20; ++i)
            (void)getppid();
        break;
    }
    case kSilent: close(connection); break;
    case kPort: asm volatile("outl %%eax, %%dx" ::"d"(0x5a1), "a"(0)); break;
    case kHang:
        send(connection, data, sizeof(data), MSG_NOSIGNAL);
        for (;;)
            pause();
    case kTrap: asm volatile("ud2"); break;
    case kIn: asm volatile("mov $0x2b, %%eax\n\tmov %%eax, %%ds\n\tinl %%dx, %%eax\n\tud2" ::"d"(0x5a0) : "eax");
    }
}

int main(int, char** argv) {
    for (u64 i = 0; i < sizeof(bss); i += 64)
        bss[i] = static_cast<unsigned char>(i >> 6);
    heap_large = static_cast<unsigned char*>(std::malloc(1 << 20));
    std::memset(heap_large, 0x11, 1 << 20);
    heap_small = static_cast<unsigned char*>(std::malloc(64));
    std::memset(heap_small, 0x22, 64);
    const auto map = [](u64 bytes, int prot, int flags, int fd) {
        return static_cast<unsigned char*>(mmap(nullptr, bytes, prot, flags, fd, 0));
    };
    area = map(kAreaPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    for (u64 i = 0; i < kAreaPages; ++i)
        std::memset(area + i * kPage, static_cast<int>(i + 1), kPage);
    read_only = map(4 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    std::memset(read_only, 0x33, 4 * kPage);
    mprotect(read_only, 4 * kPage, PROT_READ);
    hidden = map(kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    *hidden = 9;
    mprotect(hidden, kPage, PROT_NONE);
    file_fd = open(argv[0], O_RDONLY);
    file_map = map(2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE, file_fd);
    shared_map = map(2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
    if (file_map == MAP_FAILED || shared_map == MAP_FAILED) {
        std::perror("mmap");
        return 94;
    }
    lseek(file_fd, 123, SEEK_SET);
    (void)!pipe(probe_pipe);
    signal(SIGUSR1, on_signal);
    umask(022);
    asm volatile("wrgsbase %0" ::"r"(0x1234567000ul));
    pthread_t thread;
    pthread_create(&thread, nullptr, blocked_thread, nullptr);
    Vectors in, out;
    for (int r = 0; r < 8; ++r)
        std::memset(in.xmm[r], 0x40 + r, 16);
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(8080);
    if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) < 0 || listen(listener, 16) < 0)
        return 97;
    for (;;) {
        const int connection = accept_with_vectors(listener, in, out);
        if (connection < 0)
            return 96;
        look(out);
        unsigned request[2] = {};
        if (read(connection, request, sizeof(request)) != sizeof(request))
            return 95;
        state = request[0] * 0x9e3779b97f4a7c15ul + 1;
        for (int i = 0; i < 8; ++i)
            any();
        must_answer = request[1] == kReply;
        for (u64 i = 0, n = request[0] ? any() % 60 : 0; i < n; ++i)
            spoil_once();
        end(request[1], connection);
    }
}
