// The exit loop: resumes the machine and answers its requests until an event that the caller must handle.
#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "tinykvm/abi/layout.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/kvm/cpu_tables.hpp"
#include "tinykvm/machine/machine.hpp"
#include "tinykvm/machine/ticker.hpp"

namespace tinykvm {
namespace {

constexpr std::uint32_t kBreakpoint = 3, kPageFault = 14;
// Page-fault error code (Intel SDM vol. 3, 4.7).
constexpr std::uint64_t kFaultWrite = 2, kFaultFetch = 16;
// Bits of Shared::fault_error for the guest kernel's fault entry, above those of the CPU.
constexpr std::uint32_t kAccessError = 0x80000000u, kPastFile = 0x40000000u;
// A fault that repeats this often at one address although the tables allow the access will never go away.
constexpr std::uint32_t kMaxSameFaults = 1000;
// How often a program that exits often is looked at.
constexpr std::uint64_t kTickNs = 10'000'000;

} // namespace

Stop Machine::run() {
    if (std::exchange(begins_, false) && env_->options.time == GuestTime::pauses)
        clock_.resume(image_->times, slept_ns_);
    clock_.refresh(*time_);
    at_wait_exit_ = false;
    space_.follow_files(); // files may have changed while the machine waited
    std::uint64_t next_tick = host_mono_ns() + kTickNs;
    kvm::ExitKind kind = kvm::ExitKind::io;
    for (;;) {
        {
            const RunningVcpu running(vcpu_);
            kind = vcpu_.run();
        }
        ++exits_;
        std::optional<Stop> stop;
        switch (kind) {
        case kvm::ExitKind::io:
            switch (vcpu_.io_is_plain_out() ? vcpu_.io_port() : 0) {
            case abi::kPortWait:
                ++exit_reasons_[kWaits];
                close_handles();
                at_wait_exit_ = at_wait_exit();
                waited_at_ = host_mono_ns();
                return Stop{};
            case abi::kPortHostCall:
                same_faults_ = 0; // the call may have unmapped pages that are touched next
                stop = on_host_call();
                clock_.refresh(*time_);
                break;
            case abi::kPortException:
                ++exit_reasons_[kFaults];
                space_.begin_call();
                stop = on_exception();
                break;
            default: stop = broken(fmt::format("used I/O port {:#x}", vcpu_.io_port())); break;
            }
            break;
        case kvm::ExitKind::interrupted:
            ++exit_reasons_[kInterrupts];
            vcpu_.clear_exit_request();
            clock_.refresh(*time_);
            stop = on_interrupt();
            break;
        case kvm::ExitKind::no_page:
            // The retried access finds no entry, and the program gets its SIGBUS.
            ++exit_reasons_[kFaults];
            clock_.refresh(*time_);
            if (!space_.drop_lost_pages())
                stop = broken("a page of its memory cannot be had (a full disk, or an I/O error of a mapped file)");
            else if (host_->should_stop())
                return Stop{StopKind::interrupted, 0, {}};
            break;
        case kvm::ExitKind::shutdown: stop = broken("triple fault"); break;
        case kvm::ExitKind::other:
            stop = broken(fmt::format("KVM exit reason {} ({})", vcpu_.reason(), vcpu_.internal_error()));
            break;
        }
        if (stop)
            return *stop;
        // A tick that comes during an exit is lost, and a program that exits often may lose them all.
        if (const std::uint64_t now = host_mono_ns(); now >= next_tick) {
            next_tick = now + kTickNs;
            if (kind == kvm::ExitKind::io) {
                if (host_->should_stop())
                    return Stop{StopKind::interrupted, 0, {}};
                tick_in_kernel();
            }
        }
    }
}

// Whether the vCPU is in the state in which the guest kernel's one OUT to kPortWait leaves it. The program itself may
// have executed that OUT: from a 32-bit segment, single-stepped, or with other selectors.
bool Machine::at_wait_exit() {
    const kvm_regs& regs = vcpu_.regs();
    const kvm_sregs& s = vcpu_.special();
    // Some hosts report the RIP after the OUT, others that of the OUT itself, which is one byte lower.
    const bool there = regs.rip == kernel_.wait_resume || regs.rip + 1 == kernel_.wait_resume;
    return there && (regs.rflags & kvm::kOddFlags) == 0 && s.cs.selector == kvm::kUserCode &&
           s.ss.selector == kvm::kUserData && (s.ds.selector | s.es.selector | s.fs.selector | s.gs.selector) == 0;
}

std::optional<Stop> Machine::on_interrupt() {
    if (host_->should_stop())
        return Stop{StopKind::interrupted, 0, {}};
    const std::uint64_t rip = vcpu_.regs().rip;
    const bool user = (vcpu_.special().cs.selector & 3) == 3;
    // The vDSO runs as part of the program and can be preempted.
    const bool in_vdso = rip >= layout::kVdso && rip < layout::kVdso + 2 * kPageSize;
    const bool kernel = rip >= kernel_.text_begin && rip < kernel_.supervisor_end;
    if (!user || kernel || (rip >= layout::kUserMax && !in_vdso) || vcpu_.event_in_flight()) {
        tick_in_kernel();
        return std::nullopt;
    }
    if (debugger_ && debug_tick(true))
        return std::nullopt;
    // Enter the guest kernel with the program's registers and its RIP in the slot.
    space_.store(GuestVirt(kernel_.entry_rip), rip);
    vcpu_.regs().rip = kernel_.preempt_entry;
    vcpu_.regs_changed();
    return std::nullopt;
}

std::optional<Stop> Machine::on_exception() {
    const std::uint64_t at =
        kvm::exception_stack_top(GuestVirt(layout::kCpuTables)).value - sizeof(abi::ExceptionFrame);
    const std::uint64_t stub_rip = vcpu_.regs().rip;
    if (stub_rip < kernel_.supervisor_begin || stub_rip > kernel_.supervisor_end)
        return broken(fmt::format("used I/O port {:#x}", abi::kPortException));
    auto* frame = page_pointer<abi::ExceptionFrame>(at);
    abi::ExceptionFrame f;
    std::memcpy(&f, frame, sizeof(f));
    if (debugger_ && debug_exception(f)) {
        std::memcpy(frame, &f, sizeof(f));
        return std::nullopt;
    }
    if ((f.cs & 3) != 3)
        return broken(fmt::format("exception {} at {:#x} in privileged code", f.vector, f.rip));
    const auto resume_at = [&](std::uint64_t rip) { frame->rip = rip; };
    if (f.vector == kBreakpoint && ready_at_ && f.rip == *ready_at_ + 1) {
        if (!reached_ready())
            return Stop{StopKind::no_memory, 0, "out of memory where the program is ready"};
        resume_at(kernel_.ready_entry);
        return std::nullopt;
    }
    std::uint32_t error = static_cast<std::uint32_t>(f.error) & 0xffff;
    std::uint64_t address = 0;
    if (f.vector == kPageFault) {
        address = vcpu_.special().cr2;
        const FaultAccess access = (f.error & kFaultFetch)   ? FaultAccess::execute
                                   : (f.error & kFaultWrite) ? FaultAccess::write
                                                             : FaultAccess::read;
        const FaultOutcome outcome = space_.fault(GuestVirt(address), access);
        switch (outcome) {
        case FaultOutcome::done:
            shared_->page_faults = shared_->page_faults + 1;
            shared_->peak_bytes = std::max<std::uint64_t>(shared_->peak_bytes, std::uint64_t{ram_.high()} * kPageSize);
            if (env_->options.trace_pagetables)
                host_->note(fmt::format("page fault at {:#x} {} (error {:#x}, rip {:#x})", address,
                                        describe_address(address), f.error, f.rip));
            same_faults_ = last_fault_ == address ? same_faults_ + 1 : 0;
            last_fault_ = address;
            if (same_faults_ > kMaxSameFaults)
                return broken(fmt::format("page fault at {:#x} (error {:#x}) that does not go away", address, f.error));
            return std::nullopt;
        case FaultOutcome::no_memory:
            return Stop{StopKind::no_memory, 0, fmt::format("out of memory: {} MiB in use", memory_bytes() >> 20)};
        case FaultOutcome::not_allowed: error |= kAccessError; break;
        case FaultOutcome::past_file: error |= kPastFile; break;
        case FaultOutcome::not_mapped: break;
        }
        if (f.rip >= kernel_.user_copy_begin && f.rip < kernel_.user_copy_end) {
            resume_at(kernel_.user_copy_fixup);
            return std::nullopt;
        }
    }
    if (f.rip >= kernel_.text_begin && f.rip < kernel_.text_end)
        return broken(fmt::format("exception {} (error {:#x}, address {:#x}) at {:#x} in the guest kernel", f.vector,
                                  f.error, address, f.rip));
    space_.store(GuestVirt(kernel_.entry_rip), f.rip);
    shared_->fault_address = address;
    shared_->fault_vector = static_cast<std::uint32_t>(f.vector);
    shared_->fault_error = error;
    frame->rflags = f.rflags & ~std::uint64_t{0x100}; // no single-stepping of the guest kernel
    resume_at(kernel_.fault_entry);
    return std::nullopt;
}

Stop Machine::broken(const std::string& what) {
    return Stop{StopKind::broken, 0,
                fmt::format("{}; rip {:#x} {}", what, vcpu_.regs().rip, describe_address(vcpu_.regs().rip))};
}

} // namespace tinykvm
