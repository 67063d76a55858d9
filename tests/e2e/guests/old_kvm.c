// For LD_PRELOAD: a kernel whose KVM lacks KVM_CAP_SYNC_REGS.
#include <linux/kvm.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

int ioctl(int fd, unsigned long request, ...) {
    va_list arguments;
    va_start(arguments, request);
    long argument = va_arg(arguments, long);
    va_end(arguments);
    if (request == KVM_CHECK_EXTENSION && argument == KVM_CAP_SYNC_REGS) return 0;
    return (int)syscall(SYS_ioctl, fd, request, argument);
}
