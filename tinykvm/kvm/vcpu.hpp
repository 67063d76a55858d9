// One vCPU: its kvm_run mapping, set-up ioctls and the run call. Registers are exchanged by KVM_CAP_SYNC_REGS, because
// any other register ioctl costs as much as a fifth of an exit on PVM.
// For one thread at a time. Only request_exit() may also be called from a signal handler of that thread.
#pragma once
#include <cstdint>
#include <span>

#include "tinykvm/base/mapping.hpp"
#include "tinykvm/base/unique_fd.hpp"
#include "tinykvm/kvm/kvm.hpp"

namespace tinykvm::kvm {

enum class ExitKind {
    io,          // OUT to or IN from a port; see io_port()
    interrupted, // a signal or immediate_exit
    shutdown,    // triple fault
    no_page,     // the host has no page for memory of a slot: a mapped file has become shorter
    other,       // see reason()
};

struct Msr {
    std::uint32_t index;
    std::uint64_t value;
};

// Failed ioctls throw HostError.
class Vcpu {
public:
    explicit Vcpu(const Kvm& kvm, const Vm& vm, unsigned id = 0);

    void set_cpuid(const CpuidTable& table);
    // False when the host refuses to set XCR0 (PVM: the guest runs with the host's).
    bool set_xcr0(std::uint64_t value);
    void set_msrs(std::span<const Msr> msrs);
    void set_special(const kvm_sregs& sregs);
    kvm_sregs get_special() const;
    // Cancels exceptions and interrupts that KVM is about to deliver.
    void clear_events();
    // Whether KVM is about to deliver an exception or interrupt. If so, RIP must not be changed.
    bool event_in_flight() const;
    // Makes the guest's TSC equal the host's. False when the host cannot: it is already equal (PVM), or never will be.
    bool set_tsc_offset_zero();

    std::uint32_t tsc_khz() const;

    // General registers as of the last exit; after writing to them call regs_changed() before run().
    kvm_regs& regs() { return run_->s.regs.regs; }
    kvm_sregs& special() { return run_->s.regs.sregs; }
    void regs_changed() { run_->kvm_dirty_regs |= KVM_SYNC_X86_REGS; }
    void special_changed() { run_->kvm_dirty_regs |= KVM_SYNC_X86_SREGS; }

    ExitKind run();
    // Completes the instruction that made run() return (IN waits for its value), with the registers as they are set
    // now, and cancels pending exceptions and interrupts. Runs no instruction of the guest. False when the instruction
    // cannot be completed: the vCPU must not be used again.
    bool settle();
    // Whether the exit is one OUT of 32 bits that is not a string instruction.
    bool io_is_plain_out() const { return io_is_out() && run_->io.size == 4 && run_->io.count == 1; }
    std::uint16_t io_port() const { return run_->io.port; }
    bool io_is_out() const { return run_->io.direction == KVM_EXIT_IO_OUT; }
    std::uint32_t reason() const { return run_->exit_reason; }
    std::uint64_t internal_error() const { return run_->internal.suberror; }

    // Makes run() return `interrupted` until clear_exit_request(). For a signal handler: the signal itself ends a run()
    // in progress, and this flag one that is about to enter the guest. Async-signal-safe.
    void request_exit() { run_->immediate_exit = 1; }
    void clear_exit_request() { run_->immediate_exit = 0; }

private:
    UniqueFd fd_;
    Mapping mapping_;
    kvm_run* run_;
};

} // namespace tinykvm::kvm
