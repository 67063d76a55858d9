#include "tinykvm/kvm/probe.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/mapping.hpp"
#include "tinykvm/kvm/cpu_tables.hpp"
#include "tinykvm/kvm/cpuid.hpp"
#include "tinykvm/kvm/vcpu.hpp"

// The probe's program: executes SYSCALL, reports CS, then writes to the data page and reports, again and again. It is
// copied to guest address kCode and is position-independent.
asm(R"(
.pushsection .rodata
.globl tinykvm_probe_code, tinykvm_probe_target, tinykvm_probe_end
tinykvm_probe_code:
    syscall
tinykvm_probe_target:
    mov %cs, %eax
    mov $0x5a0, %edx
    out %eax, %dx
1:  movb $1, 0x5000
    out %eax, %dx
    jmp 1b
tinykvm_probe_end:
.popsection
)");
extern "C" const std::byte tinykvm_probe_code[], tinykvm_probe_target[], tinykvm_probe_end[];

namespace tinykvm::kvm {
namespace {

// In the tiny machine, guest-physical and virtual addresses are equal.
constexpr std::uint64_t kTables = 0x1000; // three pages
constexpr std::uint64_t kCode = 0x4000;
constexpr std::uint64_t kData = 0x5000;
constexpr std::uint64_t kPml4 = 0x6000, kPdpt = 0x7000, kPd = 0x8000, kPt = 0x9000;
constexpr std::uint64_t kBytes = 0x10000;
constexpr std::uint64_t kPresent = 1, kWrite = 2, kUser = 4, kDirty = 0x40, kAccessed = 0x20;

class TinyMachine {
public:
    TinyMachine(const Kvm& kvm, bool xsave)
        : memory_(Mapping::map(kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, "probe memory")),
          vm_(kvm.create_vm()), vcpu_(kvm, vm_) {
        CpuTablesPlan plan;
        plan.base = GuestVirt(kTables);
        plan.ports[0] = 0x5a0;
        build_cpu_tables(plan, memory_.bytes().subspan(kTables, kCpuTablesBytes));
        std::memcpy(memory_.data() + kCode, tinykvm_probe_code,
                    static_cast<std::size_t>(tinykvm_probe_end - tinykvm_probe_code));
        entry(kPml4) = kPdpt | kPresent | kWrite | kUser | kAccessed;
        entry(kPdpt) = kPd | kPresent | kWrite | kUser | kAccessed;
        entry(kPd) = kPt | kPresent | kWrite | kUser | kAccessed;
        for (std::uint64_t page = kTables; page < kCode; page += kPageSize)
            entry(kPt + page / kPageSize * 8) = page | kPresent | kWrite | kAccessed | kDirty;
        // The code is a user page without SMEP, so CPL 3 and CPL 0 can both execute it.
        entry(kPt + kCode / kPageSize * 8) = kCode | kPresent | kUser | kAccessed;
        entry(kPt + kData / kPageSize * 8) = kData | kPresent | kWrite | kUser;
        vm_.set_slot(0, GuestPhys(0), kBytes, memory_.data());
        const GuestCpu cpu = guest_cpu("", xsave);
        vcpu_.set_cpuid(cpu.table);
        has_xcr0_ = !xsave || vcpu_.set_xcr0(cpu.xcr0);
        kvm_sregs sregs = user_special_registers(GuestVirt(kTables), GuestPhys(kPml4), xsave);
        sregs.apic_base = vcpu_.get_special().apic_base;
        vcpu_.set_special(sregs);
        const std::uint64_t target = kCode + static_cast<std::uint64_t>(tinykvm_probe_target - tinykvm_probe_code);
        const std::array msrs{Msr{0xc0000081, kStar}, Msr{0xc0000082, target}, Msr{0xc0000084, kSyscallMask}};
        vcpu_.set_msrs(msrs);
        vcpu_.regs() = kvm_regs{};
        vcpu_.regs().rip = kCode;
        vcpu_.regs().rflags = kUserFlags;
        vcpu_.regs_changed();
    }

    void run_to_out() {
        for (;;) {
            const ExitKind kind = vcpu_.run();
            if (kind == ExitKind::interrupted)
                continue;
            if (kind == ExitKind::io && vcpu_.io_port() == 0x5a0)
                return;
            throw UserError(
                ExitCode::no_kvm,
                fmt::format("/dev/kvm: a one-page test machine stopped with exit reason {} at {:#x}: this host's KVM "
                            "does not run 64-bit user code; see docs/HOSTS.md",
                            vcpu_.reason(), vcpu_.regs().rip));
        }
    }

    Vcpu& vcpu() { return vcpu_; }
    bool has_xcr0() const { return has_xcr0_; } // XCR0 was set, or need not be
    std::uint64_t& entry(std::uint64_t at) { return *reinterpret_cast<std::uint64_t*>(memory_.data() + at); }

private:
    Mapping memory_;
    Vm vm_;
    Vcpu vcpu_;
    bool has_xcr0_ = false;
};

// Makes the machine with XSAVE if the host has it. If the CPU has it but KVM refuses it, makes the machine without.
bool make_machine(std::optional<TinyMachine>& machine, const Kvm& kvm) {
    if (host_has_xsave()) {
        try {
            machine.emplace(kvm, true);
            return true;
        } catch (const HostError& error) {
            if (error.code().value() != EINVAL)
                throw;
        }
    }
    machine.emplace(kvm, false);
    return false;
}

HostKind probe(std::optional<TinyMachine>& made, const Kvm& kvm) {
    HostKind kind;
    kind.xsave = make_machine(made, kvm);
    TinyMachine& machine = *made;
    machine.run_to_out();
    kind.pvm_entry = (machine.vcpu().regs().rax & 3) == 3;
    kind.protection_keys = kind.pvm_entry && host_has_protection_keys();
    if (!kind.pvm_entry && !machine.has_xcr0())
        throw UserError(ExitCode::no_kvm,
                        "/dev/kvm: this host's KVM refuses KVM_SET_XCRS, which machines need; see docs/HOSTS.md");
    // PVM runs the guest with the host's XCR0: programs could use AVX registers that nobody saves and restores.
    if (kind.pvm_entry && !kind.xsave && host_has_xsave())
        throw UserError(ExitCode::no_kvm,
                        "/dev/kvm: this host has XSAVE but its KVM refuses it to machines (KVM_SET_SREGS with "
                        "CR4.OSXSAVE), and on PVM both must agree; see docs/HOSTS.md");
    std::uint64_t& data_entry = machine.entry(kPt + kData / kPageSize * 8);
    machine.run_to_out();
    const bool set_first = (data_entry & kDirty) != 0;
    data_entry &= ~kDirty;
    // A changed CR3 (its ignored PWT bit) makes KVM flush the guest's TLB.
    machine.vcpu().special().cr3 ^= 8;
    machine.vcpu().special_changed();
    machine.run_to_out();
    kind.dirty_bits = !kind.pvm_entry && set_first && (data_entry & kDirty) != 0;
    return kind;
}

// Not std::call_once: an exception would cross glibc's pthread_once(), which the C++ runtime linked into us cannot
// unwind.
struct KnownKind {
    std::mutex mutex;
    std::optional<HostKind> kind; // guarded by mutex
};

KnownKind& known_kind() {
    static KnownKind known;
    return known;
}

} // namespace

const HostKind& host_kind(const Kvm& kvm) {
    std::optional<TinyMachine> machine; // destroyed after the lock is released, because that takes a millisecond
    const std::lock_guard lock(known_kind().mutex);
    std::optional<HostKind>& kind = known_kind().kind;
    if (kind)
        return *kind;
    try {
        kind = probe(machine, kvm);
    } catch (const HostError& error) {
        if (is_shortage(error.code().value()))
            throw;
        throw UserError(ExitCode::no_kvm,
                        fmt::format("/dev/kvm: this host's KVM does not run a one-page test machine: {}; "
                                    "see docs/HOSTS.md",
                                    error.what()));
    }
    return *kind;
}

bool host_kind_is_known() {
    const std::lock_guard lock(known_kind().mutex);
    return known_kind().kind.has_value();
}

} // namespace tinykvm::kvm
