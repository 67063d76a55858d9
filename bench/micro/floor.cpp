// What the host alone charges, with no guest kernel: the floors of BM_syscall_inside and BM_syscall_host. They differ a
// lot from host to host; without them a slow host looks like a slow guest kernel.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <stdexcept>

#include "bench/micro/samples.hpp"
#include "tinykvm/base/mapping.hpp"
#include "tinykvm/kvm/cpu_tables.hpp"
#include "tinykvm/kvm/cpuid.hpp"
#include "tinykvm/kvm/probe.hpp"
#include "tinykvm/kvm/vcpu.hpp"

// RBX system calls, each of which returns at once, then an exit. It uses no absolute address of its own.
asm(R"(
.pushsection .rodata
micro_floor_code:
    test %rbx, %rbx
    jz 2f
1:  syscall
    dec %rbx
    jnz 1b
2:  mov $0x5a0, %edx
    out %eax, %dx
micro_floor_pvm:
    jmp *%rcx
micro_floor_hardware:
    sysretq
micro_floor_end:
.popsection
)");
extern "C" const std::byte micro_floor_code[], micro_floor_pvm[], micro_floor_hardware[], micro_floor_end[];

namespace kvmserver::micro {

using namespace tinykvm;
using namespace tinykvm::kvm;

namespace {

// As the probe's machine (tinykvm/kvm/probe.cpp): guest-physical and virtual addresses coincide.
constexpr std::uint64_t kTables = 0x1000, kCode = 0x4000, kPml4 = 0x6000, kPdpt = 0x7000, kPd = 0x8000, kPt = 0x9000;
constexpr std::uint64_t kBytes = 0x10000;
constexpr std::uint64_t kPresent = 1, kWrite = 2, kUser = 4, kDirty = 0x40, kAccessed = 0x20;

class BareMachine {
public:
    BareMachine()
        : kvm_(Kvm::open()),
          memory_(Mapping::map(kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, "bare memory")),
          vm_(kvm_.create_vm()), vcpu_(kvm_, vm_) {
        CpuTablesPlan plan;
        plan.base = GuestVirt(kTables);
        plan.ports[0] = kPort;
        build_cpu_tables(plan, memory_.bytes().subspan(kTables, kCpuTablesBytes));
        std::memcpy(memory_.data() + kCode, micro_floor_code,
                    static_cast<std::size_t>(micro_floor_end - micro_floor_code));
        entry(kPml4) = kPdpt | kPresent | kWrite | kUser | kAccessed;
        entry(kPdpt) = kPd | kPresent | kWrite | kUser | kAccessed;
        entry(kPd) = kPt | kPresent | kWrite | kUser | kAccessed;
        for (std::uint64_t page = kTables; page < kCode; page += kPageSize)
            entry(kPt + page / kPageSize * 8) = page | kPresent | kWrite | kAccessed | kDirty;
        entry(kPt + kCode / kPageSize * 8) = kCode | kPresent | kUser | kAccessed;
        vm_.set_slot(0, GuestPhys(0), kBytes, memory_.data());
        vcpu_.set_cpuid(guest_cpu("", host_kind(kvm_).xsave).table);
        kvm_sregs sregs = user_special_registers(GuestVirt(kTables), GuestPhys(kPml4), host_kind(kvm_).xsave);
        sregs.apic_base = vcpu_.get_special().apic_base;
        vcpu_.set_special(sregs);
        const std::byte* entry_point = host_kind(kvm_).pvm_entry ? micro_floor_pvm : micro_floor_hardware;
        const std::array msrs{Msr{0xc0000081, kStar},
                              Msr{0xc0000082, kCode + static_cast<std::uint64_t>(entry_point - micro_floor_code)},
                              Msr{0xc0000084, kSyscallMask}};
        vcpu_.set_msrs(msrs);
    }

    // So many system calls, and the exit.
    void run(std::uint64_t calls) {
        vcpu_.regs() = kvm_regs{};
        vcpu_.regs().rip = kCode;
        vcpu_.regs().rbx = calls;
        vcpu_.regs().rflags = kUserFlags;
        vcpu_.regs_changed();
        ExitKind kind = vcpu_.run();
        while (kind == ExitKind::interrupted)
            kind = vcpu_.run();
        if (kind != ExitKind::io || vcpu_.io_port() != kPort)
            throw std::runtime_error("the bare machine stopped with exit reason " + std::to_string(vcpu_.reason()));
    }

private:
    static constexpr std::uint16_t kPort = 0x5a0;
    std::uint64_t& entry(std::uint64_t at) { return *reinterpret_cast<std::uint64_t*>(memory_.data() + at); }

    Kvm kvm_;
    Mapping memory_;
    Vm vm_;
    Vcpu vcpu_;
};

// SYSCALL to another place in the machine, and back.
void BM_syscall_floor(benchmark::State& state) {
    constexpr std::uint64_t kCalls = 10'000;
    BareMachine machine;
    machine.run(1);
    for (auto _ : state)
        state.SetIterationTime(seconds(timed_ns([&] { machine.run(kCalls); })) / kCalls);
}

// OUT to the host, and KVM_RUN again with registers that changed.
void BM_exit_floor(benchmark::State& state) {
    constexpr int kExits = 300;
    BareMachine machine;
    machine.run(0);
    for (auto _ : state)
        state.SetIterationTime(seconds(timed_ns([&] {
                                   for (int i = 0; i < kExits; ++i)
                                       machine.run(0);
                               })) /
                               kExits);
}

BENCHMARK(BM_syscall_floor)->UseManualTime()->Iterations(10)->Unit(benchmark::kNanosecond);
BENCHMARK(BM_exit_floor)->UseManualTime()->Iterations(10)->Unit(benchmark::kNanosecond);

} // namespace
} // namespace kvmserver::micro
