// For LD_PRELOAD: a kernel whose KVM refuses what KVM_REFUSES says: the name of an ioctl, or "OSXSAVE", as on a host
// without XSAVE: CR4.OSXSAVE and XCR0 are not to be had.
#include <errno.h>
#include <linux/kvm.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
    const char* name;
    unsigned long request;
} kNames[] = {
    {"KVM_CREATE_VM", KVM_CREATE_VM},
    {"KVM_GET_VCPU_MMAP_SIZE", KVM_GET_VCPU_MMAP_SIZE},
    {"KVM_CREATE_VCPU", KVM_CREATE_VCPU},
    {"KVM_SET_USER_MEMORY_REGION", KVM_SET_USER_MEMORY_REGION},
    {"KVM_SET_CPUID2", KVM_SET_CPUID2},
    {"KVM_GET_SREGS", KVM_GET_SREGS},
    {"KVM_SET_SREGS", KVM_SET_SREGS},
    {"KVM_SET_MSRS", KVM_SET_MSRS},
    {"KVM_RUN", KVM_RUN},
};

static int is_refused(unsigned long request, const void* argument) {
    const char* refuses = getenv("KVM_REFUSES");
    if (!refuses || _IOC_TYPE(request) != KVMIO) return 0;
    if (strcmp(refuses, "OSXSAVE") == 0)
        return request == KVM_SET_XCRS ||
               (request == KVM_SET_SREGS && ((const struct kvm_sregs*)argument)->cr4 & 1u << 18);
    for (unsigned i = 0; i < sizeof(kNames) / sizeof(kNames[0]); i++)
        if (strcmp(refuses, kNames[i].name) == 0) return _IOC_NR(request) == _IOC_NR(kNames[i].request);
    return 0;
}

int ioctl(int fd, unsigned long request, ...) {
    va_list arguments;
    va_start(arguments, request);
    void* argument = va_arg(arguments, void*);
    va_end(arguments);
    if (is_refused(request, argument)) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_ioctl, fd, request, argument);
}
