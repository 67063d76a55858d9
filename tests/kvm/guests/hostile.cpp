// A program that does what no program does: it knows the guest kernel's addresses and the host calls.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/abi/layout.hpp"

using namespace tinykvm;
using u64 = unsigned long;

static u64 state;
static u64 any() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}
static abi::Shared& shared() { return *reinterpret_cast<abi::Shared*>(layout::kShared); }
static const abi::KernelHeader& kernel() { return *reinterpret_cast<const abi::KernelHeader*>(layout::kKernelImage); }
static void out(unsigned short port, unsigned value) { asm volatile("outl %0, %1" ::"a"(value), "d"(port) : "memory"); }

static unsigned char buffer[64 << 10];

// A number that somebody may take for an address, a length, a handle.
static u64 argument() {
    switch (any() % 12) {
    case 0: return 0;
    case 1: return any() % 8;
    case 2: return ~0ul - any() % 4096;
    case 3: return any();
    case 4: return layout::kKernelImage + any() % (512ul << 20);
    case 5: return layout::kShared + any() % 4096;
    case 6: return layout::kUserMax - any() % 8192;
    case 7: return 1ul << (any() % 64);
    case 8: return any() % 65536;
    case 9: return (any() % 100000) * 4096;
    default: return reinterpret_cast<u64>(buffer) + any() % sizeof(buffer);
    }
}

static void fill_buffer() {
    for (u64 at = 0; at + 8 <= sizeof(buffer); at += 8) {
        const u64 value = argument();
        std::memcpy(buffer + at, &value, 8);
    }
    static const char* const names[] = {
        "/", "/etc/passwd", "/proc/self/mem", "/dev/null", "relative", "/proc/self/maps", ""};
    for (int i = 0; i < 64; ++i)
        std::strcpy(reinterpret_cast<char*>(buffer) + (any() % (sizeof(buffer) - 64)), names[any() % 7]);
}

static void random_call() {
    abi::HostCall& call = shared().call;
    switch (any() % 6) {
    case 0: call.nr = 0x1000 + static_cast<unsigned>(any() % 4); break;
    case 1: call.nr = 0x1800 + static_cast<unsigned>(any() % 16); break;
    case 2: call.nr = static_cast<unsigned>(any()); break;
    default: call.nr = static_cast<unsigned>(any() % 460); break;
    }
    // These end the machine at once; they have had their turn often enough.
    if ((call.nr == abi::kExit || call.nr == abi::kKilled || call.nr == abi::kPanic) && any() % 16 != 0)
        call.nr = abi::kListen;
    for (auto& a : call.arg)
        a = argument();
    if (any() % 2)
        call.arg[0] = any() % 6; // a handle there may be
    out(abi::kPortHostCall, 0);
}

static void use_system() {
    char text[64];
    (void)!getcwd(text, sizeof(text));
    (void)getpid();
    const int fd = open("/etc/hostname", O_RDONLY);
    (void)!read(fd, text, sizeof(text));
    close(fd);
    int pipe_fds[2];
    if (pipe(pipe_fds) == 0) {
        (void)!write(pipe_fds[1], text, 10);
        (void)!read(pipe_fds[0], text, 10);
        close(pipe_fds[0]);
        close(pipe_fds[1]);
    }
    void* p = mmap(nullptr, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p != MAP_FAILED) {
        *static_cast<volatile char*>(p) = 1;
        munmap(p, 1 << 16);
    }
}

static void scribble(u64 begin, u64 bytes, int times) {
    for (int i = 0; i < times; ++i) {
        const u64 at = (begin + any() % bytes) & ~7ul;
        const u64 value = any() % 2 ? argument() : any();
        *reinterpret_cast<volatile u64*>(at) = value;
    }
}

int main(int argc, char** argv) {
    if (argc < 3)
        return 98;
    const char* mode = argv[1];
    state = std::strtoul(argv[2], nullptr, 0) * 0x9e3779b97f4a7c15ul + 1;
    for (int i = 0; i < 8; ++i)
        any();
    fill_buffer();
    if (!std::strcmp(mode, "port")) {
        out(static_cast<unsigned short>(std::strtoul(argv[2], nullptr, 0)), 0x12345678);
        return 3;
    }
    if (!std::strcmp(mode, "in")) {
        unsigned value;
        asm volatile("inl %1, %0" : "=a"(value) : "d"(static_cast<unsigned short>(std::strtoul(argv[2], nullptr, 0))));
        return 3;
    }
    if (!std::strcmp(mode, "string")) { // many at once
        const void* from = buffer;
        u64 count = 1000;
        asm volatile("rep outsl"
                     : "+S"(from), "+c"(count)
                     : "d"(static_cast<unsigned short>(std::strtoul(argv[2], nullptr, 0)))
                     : "memory");
        return 3;
    }
    if (!std::strcmp(mode, "exception")) { // the port of the exception stubs, from CPL 3
        asm volatile("outl %%eax, $0xe0" ::: "memory");
        return 3;
    }
    if (!std::strcmp(mode, "wait")) {
        for (int i = 0; i < 50; ++i) {
            scribble(reinterpret_cast<u64>(&shared().wait), sizeof(abi::Wait), 40);
            scribble(layout::kConnTable, sizeof(abi::Conn) * abi::kMaxConns, 400);
            shared().conn_limit = static_cast<unsigned>(any());
            out(abi::kPortWait, 0);
        }
        return 3;
    }
    if (!std::strcmp(mode, "calls")) {
        for (int i = 0; i < 2000; ++i)
            random_call();
        return 3;
    }
    if (!std::strcmp(mode, "jump")) {
        const u64 begin = kernel().text_begin, end = kernel().supervisor_end;
        const u64 to = begin + any() % (end - begin);
        asm volatile("jmp *%0" ::"r"(to), "D"(argument()), "S"(argument()), "d"(argument()), "c"(argument()),
                     "a"(argument()));
    }
    if (!std::strcmp(mode, "entry")) { // in by a door, with garbage in the registers
        const u64 doors[] = {kernel().boot_entry,     kernel().syscall_entry,  kernel().preempt_entry,
                             kernel().fault_entry,    kernel().wait_resume,    kernel().user_copy_begin,
                             kernel().hardware_entry, kernel().exception_stubs};
        shared().fault_vector = static_cast<unsigned>(any());
        shared().fault_error = static_cast<unsigned>(any());
        asm volatile("jmp *%0" ::"r"(doors[any() % 8]), "D"(argument()), "S"(argument()), "d"(argument()),
                     "c"(argument()), "a"(argument()));
    }
    if (!std::strcmp(mode, "scribble")) {
        for (int i = 0; i < 60; ++i) {
            switch (any() % 4) {
            case 0:
                scribble(kernel().data_begin, kernel().data_end - kernel().data_begin, 1 + static_cast<int>(any() % 4));
                break;
            case 1: scribble(layout::kShared, sizeof(abi::Shared), 1 + static_cast<int>(any() % 8)); break;
            case 2: scribble(layout::kConnTable, sizeof(abi::Conn) * abi::kMaxConns, 64); break;
            case 3: scribble(layout::kKernelHeap, 1 << 16, 8); break;
            }
            use_system();
        }
        return 3;
    }
    if (!std::strcmp(mode, "text")) { // not writable: SIGSEGV
        *reinterpret_cast<volatile char*>(kernel().text_begin) = 1;
        return 3;
    }
    return 98;
}
