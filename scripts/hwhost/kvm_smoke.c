// Proof that /dev/kvm works here: a real-mode machine counts on a port, and every value is checked.
// Usage: kvm_smoke [EXITS]. Prints "kvm ok" and what an exit cost.
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { kCodeAddress = 0x1000, kPort = 0x42, kMemorySize = 0x10000 };

// add al, bl; out dx, al; jmp back to the add
static const uint8_t kCode[] = {0x00, 0xd8, 0xee, 0xeb, 0xfb};

static void die(const char* what) {
    perror(what);
    exit(1);
}

static int checked_ioctl(int fd, unsigned long request, void* argument, const char* what) {
    const int result = ioctl(fd, request, argument);
    if (result < 0) die(what);
    return result;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int argc, char** argv) {
    const long exits = argc > 1 ? atol(argv[1]) : 1000;
    const int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    if (kvm < 0) die("/dev/kvm");
    const int version = checked_ioctl(kvm, KVM_GET_API_VERSION, NULL, "KVM_GET_API_VERSION");
    if (version != KVM_API_VERSION) {
        fprintf(stderr, "KVM API version %d, expected %d\n", version, KVM_API_VERSION);
        return 1;
    }
    const int vm = checked_ioctl(kvm, KVM_CREATE_VM, NULL, "KVM_CREATE_VM");

    uint8_t* memory =
        mmap(NULL, kMemorySize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) die("mmap");
    memcpy(memory + kCodeAddress, kCode, sizeof kCode);
    struct kvm_userspace_memory_region region = {
        .memory_size = kMemorySize,
        .userspace_addr = (uint64_t)(uintptr_t)memory,
    };
    checked_ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region, "KVM_SET_USER_MEMORY_REGION");

    const int vcpu = checked_ioctl(vm, KVM_CREATE_VCPU, NULL, "KVM_CREATE_VCPU");
    const int run_size = checked_ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, NULL, "KVM_GET_VCPU_MMAP_SIZE");
    struct kvm_run* run = mmap(NULL, (size_t)run_size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
    if (run == MAP_FAILED) die("mmap of the vCPU");

    struct kvm_sregs sregs;
    checked_ioctl(vcpu, KVM_GET_SREGS, &sregs, "KVM_GET_SREGS");
    sregs.cs.base = 0;
    sregs.cs.selector = 0;
    checked_ioctl(vcpu, KVM_SET_SREGS, &sregs, "KVM_SET_SREGS");
    struct kvm_regs regs = {.rip = kCodeAddress, .rbx = 3, .rdx = kPort, .rflags = 2};
    checked_ioctl(vcpu, KVM_SET_REGS, &regs, "KVM_SET_REGS");

    const double start = now();
    uint8_t expected = 0;
    for (long i = 0; i < exits; i++) {
        checked_ioctl(vcpu, KVM_RUN, NULL, "KVM_RUN");
        expected = (uint8_t)(expected + 3);
        if (run->exit_reason != KVM_EXIT_IO || run->io.direction != KVM_EXIT_IO_OUT ||
            run->io.port != kPort) {
            fprintf(stderr, "exit %ld: unexpected reason %u\n", i, run->exit_reason);
            return 1;
        }
        const uint8_t value = *((uint8_t*)run + run->io.data_offset);
        if (value != expected) {
            fprintf(stderr, "exit %ld: the machine wrote %u, expected %u\n", i, value, expected);
            return 1;
        }
    }
    printf("kvm ok: %ld exits, %.1f us each\n", exits, (now() - start) * 1e6 / (double)exits);
    return 0;
}
