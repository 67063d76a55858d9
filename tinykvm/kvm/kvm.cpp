#include "tinykvm/kvm/kvm.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "tinykvm/base/error.hpp"

namespace tinykvm::kvm {
namespace {

// Reports the failure of a call that every machine needs. Apart from shortages, it works on a host with KVM or never.
[[noreturn]] void throw_refused(const char* call) {
    const int error = errno;
    if (is_shortage(error))
        throw_errno(call);
    const char* const why = error == EBUSY ? " (another hypervisor has the CPU's virtualisation)" : "";
    throw UserError(ExitCode::no_kvm, fmt::format("/dev/kvm: this host's KVM refuses {}: {}{}; see docs/HOSTS.md", call,
                                                  std::strerror(error), why));
}

} // namespace

Kvm Kvm::open(const char* path) {
    UniqueFd fd(::open(path, O_RDWR | O_CLOEXEC));
    if (!fd) {
        const int error = errno;
        if (error == ENOENT)
            throw UserError(
                ExitCode::no_kvm,
                fmt::format("{} is missing: this host offers no KVM; load the kvm module (modprobe kvm_intel, "
                            "kvm_amd or kvm_pvm) or enable nested virtualisation",
                            path));
        if (error == EACCES || error == EPERM)
            throw UserError(
                ExitCode::no_kvm,
                fmt::format("{} is not permitted: kvmserver doctor says what lets you open it (mostly sudo usermod -aG "
                            "kvm $USER, then log in again)",
                            path));
        throw UserError(ExitCode::no_kvm, fmt::format("{}: {}", path, std::strerror(error)));
    }
    const int version = ::ioctl(fd.get(), KVM_GET_API_VERSION, 0);
    if (version != KVM_API_VERSION)
        throw UserError(ExitCode::no_kvm,
                        fmt::format("{}: KVM API version {} (need {}): not a KVM device of this kernel", path, version,
                                    KVM_API_VERSION));
    Kvm kvm(std::move(fd));
    struct Need {
        unsigned long capability;
        const char* name;
    };
    for (const Need need :
         {Need{KVM_CAP_USER_MEMORY, "KVM_CAP_USER_MEMORY"}, Need{KVM_CAP_SYNC_REGS, "KVM_CAP_SYNC_REGS"},
          Need{KVM_CAP_IMMEDIATE_EXIT, "KVM_CAP_IMMEDIATE_EXIT"}, Need{KVM_CAP_EXT_CPUID, "KVM_CAP_EXT_CPUID"}})
        if (kvm.check(need.capability) <= 0)
            throw UserError(
                ExitCode::no_kvm,
                fmt::format("{}: this kernel's KVM lacks {}; Linux 5.10 or newer is needed", path, need.name));
    const int run_bytes = ::ioctl(kvm.fd_.get(), KVM_GET_VCPU_MMAP_SIZE, 0);
    if (run_bytes < 0)
        throw_refused("KVM_GET_VCPU_MMAP_SIZE");
    kvm.run_bytes_ = static_cast<std::size_t>(run_bytes);
    return kvm;
}

int Kvm::check(unsigned long capability) const { return ::ioctl(fd_.get(), KVM_CHECK_EXTENSION, capability); }

Vm Kvm::create_vm() const {
    for (;;) {
        UniqueFd fd(::ioctl(fd_.get(), KVM_CREATE_VM, 0));
        if (fd)
            return Vm(std::move(fd));
        if (errno != EINTR) // a signal arrived while the kernel registered its MMU notifier
            throw_refused("KVM_CREATE_VM");
    }
}

void Vm::set_slot(std::uint32_t slot, GuestPhys at, std::uint64_t bytes, void* host, std::uint32_t flags) {
    kvm_userspace_memory_region region{};
    region.slot = slot;
    region.flags = flags;
    region.guest_phys_addr = at.value;
    region.memory_size = bytes;
    region.userspace_addr = reinterpret_cast<std::uint64_t>(host);
    if (::ioctl(fd_.get(), KVM_SET_USER_MEMORY_REGION, &region) < 0)
        throw_errno("KVM_SET_USER_MEMORY_REGION");
}

UniqueFd Vm::create_vcpu(unsigned id) const {
    UniqueFd fd(::ioctl(fd_.get(), KVM_CREATE_VCPU, id));
    if (!fd)
        throw_refused("KVM_CREATE_VCPU");
    return fd;
}

} // namespace tinykvm::kvm
