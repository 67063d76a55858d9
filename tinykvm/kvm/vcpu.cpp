#include "tinykvm/kvm/vcpu.hpp"

#include <sys/mman.h>

#include <cerrno>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/must_hold.hpp"

namespace tinykvm::kvm {

Vcpu::Vcpu(const Kvm& kvm, const Vm& vm, unsigned id) : fd_(vm.create_vcpu(id)) {
    mapping_ = Mapping::map(kvm.run_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0, "kvm_run");
    run_ = reinterpret_cast<kvm_run*>(mapping_.data());
    run_->kvm_valid_regs = KVM_SYNC_X86_REGS | KVM_SYNC_X86_SREGS;
}

void Vcpu::set_cpuid(const CpuidTable& table) {
    if (::ioctl(fd_.get(), kSetCpuid2, &table) < 0)
        throw_errno("KVM_SET_CPUID2");
}

bool Vcpu::set_xcr0(std::uint64_t value) {
    kvm_xcrs xcrs{};
    xcrs.nr_xcrs = 1;
    xcrs.xcrs[0].xcr = 0;
    xcrs.xcrs[0].value = value;
    return ::ioctl(fd_.get(), KVM_SET_XCRS, &xcrs) == 0;
}

void Vcpu::set_msrs(std::span<const Msr> msrs) {
    MsrTable table;
    must_hold(msrs.size() <= std::size(table.entries));
    for (const Msr& msr : msrs)
        table.entries[table.nmsrs++] = {msr.index, 0, msr.value};
    const int done = ::ioctl(fd_.get(), kSetMsrs, &table);
    if (done < 0)
        throw_errno("KVM_SET_MSRS");
    if (static_cast<std::uint32_t>(done) != table.nmsrs)
        throw HostError(EINVAL, "KVM_SET_MSRS " + std::to_string(table.entries[done].index));
}

void Vcpu::set_special(const kvm_sregs& sregs) {
    if (::ioctl(fd_.get(), KVM_SET_SREGS, &sregs) < 0)
        throw_errno("KVM_SET_SREGS");
    run_->s.regs.sregs = sregs;
}

kvm_sregs Vcpu::get_special() const {
    kvm_sregs sregs;
    if (::ioctl(fd_.get(), KVM_GET_SREGS, &sregs) < 0)
        throw_errno("KVM_GET_SREGS");
    return sregs;
}

void Vcpu::clear_events() {
    kvm_vcpu_events events{};
    if (::ioctl(fd_.get(), KVM_SET_VCPU_EVENTS, &events) < 0)
        throw_errno("KVM_SET_VCPU_EVENTS");
}

bool Vcpu::event_in_flight() const {
    kvm_vcpu_events events{};
    if (::ioctl(fd_.get(), KVM_GET_VCPU_EVENTS, &events) < 0)
        throw_errno("KVM_GET_VCPU_EVENTS");
    return events.exception.injected || events.exception.pending || events.interrupt.injected;
}

bool Vcpu::set_tsc_offset_zero() {
#ifdef KVM_VCPU_TSC_CTRL
    std::uint64_t offset = 0;
    kvm_device_attr attr{};
    attr.group = KVM_VCPU_TSC_CTRL;
    attr.attr = KVM_VCPU_TSC_OFFSET;
    attr.addr = reinterpret_cast<std::uint64_t>(&offset);
    return ::ioctl(fd_.get(), KVM_SET_DEVICE_ATTR, &attr) == 0;
#else
    return false;
#endif
}

std::uint32_t Vcpu::tsc_khz() const {
    const int khz = ::ioctl(fd_.get(), KVM_GET_TSC_KHZ, 0);
    if (khz <= 0)
        throw_errno("KVM_GET_TSC_KHZ");
    return static_cast<std::uint32_t>(khz);
}

// KVM_RUN first takes over the registers, then completes the pending instruction, and then checks immediate_exit (Linux
// Documentation/virt/kvm/api.rst, "The kvm_run structure").
bool Vcpu::settle() {
    request_exit();
    const ExitKind kind = run();
    clear_exit_request();
    if (kind != ExitKind::interrupted)
        return false;
    clear_events();
    return !event_in_flight();
}

ExitKind Vcpu::run() {
    const int result = ::ioctl(fd_.get(), KVM_RUN, 0);
    if (result < 0) {
        if (errno == EINTR || errno == EAGAIN)
            return ExitKind::interrupted;
        if (errno == EFAULT)
            return ExitKind::no_page;
        throw_errno("KVM_RUN");
    }
    switch (run_->exit_reason) {
    case KVM_EXIT_IO: return ExitKind::io;
    case KVM_EXIT_INTR: return ExitKind::interrupted;
    case KVM_EXIT_SHUTDOWN: return ExitKind::shutdown;
    default: return ExitKind::other;
    }
}

} // namespace tinykvm::kvm
