// The tables a CPU in long mode needs (GDT, TSS with I/O bitmap, IDT) and the special registers that use them.
// They fill whole pages that are mapped supervisor-only; see layout::kCpuTables.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "tinykvm/base/guest_addr.hpp"
#include "tinykvm/kvm/abi.hpp"

namespace tinykvm::kvm {

// Selectors. The user selectors are those that Linux programs see. Their order follows from STAR: SYSRET loads SS from
// STAR[63:48]+8 and CS from STAR[63:48]+16 (AMD64 manual vol. 2, 6.1.1).
inline constexpr std::uint16_t kKernelCode = 0x08;
inline constexpr std::uint16_t kKernelData = 0x10;
inline constexpr std::uint16_t kUserData = 0x2b;
inline constexpr std::uint16_t kUserCode = 0x33;
inline constexpr std::uint16_t kTssSelector = 0x40;
inline constexpr std::uint64_t kStar = (std::uint64_t{0x23} << 48) | (std::uint64_t{kKernelCode} << 32);

// RFLAGS of code at CPL 3: bit 1 (always set), IF, and IOPL 3. QEMU's emulated SVM needs IOPL 3 for OUT; PVM ignores it
// and checks the TSS bitmap instead.
inline constexpr std::uint64_t kUserFlags = 0x2 | 0x200 | 0x3000;
// Flags that SYSCALL clears: TF, DF, NT, AC, RF.
inline constexpr std::uint64_t kSyscallMask = 0x100 | 0x400 | 0x4000 | 0x40000 | 0x10000;

// Flags that are never set in the guest kernel: TF, NT, AC, RF.
inline constexpr std::uint64_t kOddFlags = 0x100 | 0x4000 | 0x40000 | 0x10000;

struct CpuTablesPlan {
    GuestVirt base;              // where the pages will be mapped
    std::uint64_t stubs = 0;     // address of exception stub 0; 0: no IDT entries
    std::uint64_t stride = 0;    // bytes between stubs
    std::uint16_t ports[3] = {}; // I/O ports that CPL 3 may use
    // Exceptions at CPL 0 use the exception stack, too. Otherwise a program can raise one there on a stack of its
    // choice, by single-stepping a SYSCALL after MOV SS (CVE-2018-8897). Not needed on PVM: no SYSCALL enters CPL 0.
    bool always_switch_stacks = false;
};
inline constexpr std::size_t kCpuTablesBytes = 3 * kPageSize; // tables and bitmap, an unused page, exception stack

// Fills `out`, which must be zeroed and have kCpuTablesBytes.
void build_cpu_tables(const CpuTablesPlan& plan, std::span<std::byte> out);
// Top of the exception stack of a plan at `base`.
GuestVirt exception_stack_top(GuestVirt base);

// Special registers for CPL 3 code with these tables and this page-table root. `xsave` sets CR4.OSXSAVE, which some
// hosts refuse.
kvm_sregs user_special_registers(GuestVirt tables, GuestPhys page_table_root, bool xsave);

} // namespace tinykvm::kvm
