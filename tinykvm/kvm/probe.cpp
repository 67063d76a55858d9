#include "tinykvm/kvm/probe.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <mutex>
#include <optional>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/mapping.hpp"
#include "tinykvm/kvm/cpu_tables.hpp"
#include "tinykvm/kvm/cpuid.hpp"
#include "tinykvm/kvm/vcpu.hpp"

// The probe's program: SYSCALL; report CS; then write to the data page, report, and once more.
// It is copied to guest address kCode and uses no absolute address of its own.
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

// Guest-physical and virtual addresses of the tiny machine coincide.
constexpr std::uint64_t kTables = 0x1000; // three pages
constexpr std::uint64_t kCode = 0x4000;
constexpr std::uint64_t kData = 0x5000;
constexpr std::uint64_t kPml4 = 0x6000, kPdpt = 0x7000, kPd = 0x8000, kPt = 0x9000;
constexpr std::uint64_t kBytes = 0x10000;
constexpr std::uint64_t kPresent = 1, kWrite = 2, kUser = 4, kDirty = 0x40, kAccessed = 0x20;

class TinyMachine {
public:
    explicit TinyMachine(const Kvm& kvm)
        : memory_(Mapping::map(kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, "probe memory")),
          vm_(kvm.create_vm()), vcpu_(kvm, vm_) {
        CpuTablesPlan plan;
        plan.base = GuestVirt(kTables);
        plan.ports[0] = 0x5a0;
        build_cpu_tables(plan, memory_.bytes().subspan(kTables, kCpuTablesBytes));
        std::memcpy(memory_.data() + kCode, tinykvm_probe_code, static_cast<std::size_t>(tinykvm_probe_end - tinykvm_probe_code));
        entry(kPml4) = kPdpt | kPresent | kWrite | kUser | kAccessed;
        entry(kPdpt) = kPd | kPresent | kWrite | kUser | kAccessed;
        entry(kPd) = kPt | kPresent | kWrite | kUser | kAccessed;
        for (std::uint64_t page = kTables; page < kCode; page += kPageSize)
            entry(kPt + page / kPageSize * 8) = page | kPresent | kWrite | kAccessed | kDirty;
        // The code stays supervisor-readable and user-executable: both doors must be able to fetch it.
        entry(kPt + kCode / kPageSize * 8) = kCode | kPresent | kUser | kAccessed;
        entry(kPt + kData / kPageSize * 8) = kData | kPresent | kWrite | kUser;
        vm_.set_slot(0, GuestPhys(0), kBytes, memory_.data());
        const GuestCpu cpu = guest_cpu("");
        vcpu_.set_cpuid(cpu.table);
        kvm_sregs sregs = user_special_registers(GuestVirt(kTables), GuestPhys(kPml4));
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
            throw UserError(ExitCode::no_kvm,
                            fmt::format("/dev/kvm: a one-page test machine stopped with exit reason {} at {:#x}: this host's KVM "
                                        "does not run 64-bit user code; see docs/HOSTS.md",
                                        vcpu_.reason(), vcpu_.regs().rip));
        }
    }

    Vcpu& vcpu() { return vcpu_; }
    std::uint64_t& entry(std::uint64_t at) { return *reinterpret_cast<std::uint64_t*>(memory_.data() + at); }

private:
    Mapping memory_;
    Vm vm_;
    Vcpu vcpu_;
};

HostKind probe(TinyMachine& machine) {
    HostKind kind;
    machine.run_to_out();
    kind.pvm_door = (machine.vcpu().regs().rax & 3) == 3;
    std::uint64_t& data_entry = machine.entry(kPt + kData / kPageSize * 8);
    machine.run_to_out();
    const bool set_first = (data_entry & kDirty) != 0;
    data_entry &= ~kDirty;
    // A changed CR3 value (its ignored PWT bit) makes KVM flush the guest's TLB.
    machine.vcpu().special().cr3 ^= 8;
    machine.vcpu().special_changed();
    machine.run_to_out();
    kind.dirty_bits = !kind.pvm_door && set_first && (data_entry & kDirty) != 0;
    return kind;
}

} // namespace

const HostKind& host_kind(const Kvm& kvm) {
    static std::once_flag once;
    static HostKind kind;
    std::optional<TinyMachine> machine; // takes a millisecond to go, which other threads need not wait for
    std::call_once(once, [&] { kind = probe(machine.emplace(kvm)); });
    return kind;
}

} // namespace tinykvm::kvm
