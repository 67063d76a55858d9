#include "tinykvm/kvm/cpu_tables.hpp"

#include <cstring>

#include "tinykvm/base/must_hold.hpp"

namespace tinykvm::kvm {
namespace {

// Offsets in the pages. The I/O bitmap directly follows the TSS, because the TSS limit must cover it.
constexpr std::uint64_t kGdtAt = 0;     // 10 entries
constexpr std::uint64_t kIdtAt = 0x100; // 32 entries of 16 bytes
constexpr std::uint64_t kTssAt = 0x800; // 104 bytes, then the bitmap
constexpr std::uint64_t kTssHead = 104;
constexpr std::uint64_t kBitmapBytes = 0x5b0 / 8 + 1; // covers all our ports
constexpr std::uint64_t kStackAt = 2 * kPageSize;

constexpr std::uint32_t kTssLimit = kTssHead + kBitmapBytes; // plus the closing 0xff byte, minus one

// Code and data descriptors in long mode (AMD64 manual vol. 2, 4.8): base and limit are ignored.
constexpr std::uint64_t descriptor(bool code, unsigned dpl) {
    const std::uint64_t access = 0x93 | (code ? 0x08 : 0x00) | (dpl << 5); // present, S, accessed, RW
    return (access << 40) | (code ? 1ull << 53 : 1ull << 54) | (1ull << 55) | 0xffffull | (0xfull << 48);
}

template <class T>
void put(std::span<std::byte> out, std::uint64_t at, T value) {
    must_hold(at + sizeof(T) <= out.size());
    std::memcpy(out.data() + at, &value, sizeof(T));
}

kvm_segment segment(std::uint16_t selector, bool code, unsigned dpl) {
    kvm_segment s{};
    s.limit = 0xffffffff;
    s.selector = selector;
    s.type = code ? 0xb : 0x3;
    s.present = 1;
    s.dpl = static_cast<std::uint8_t>(dpl);
    s.db = code ? 0 : 1;
    s.s = 1;
    s.l = code ? 1 : 0;
    s.g = 1;
    return s;
}

} // namespace

void build_cpu_tables(const CpuTablesPlan& plan, std::span<std::byte> out) {
    must_hold(out.size() >= kCpuTablesBytes);
    put(out, kGdtAt + kKernelCode, descriptor(true, 0));
    put(out, kGdtAt + kKernelData, descriptor(false, 0));
    put(out, kGdtAt + (kUserData & ~3u), descriptor(false, 3));
    put(out, kGdtAt + (kUserCode & ~3u), descriptor(true, 3));
    const std::uint64_t tss = plan.base.value + kTssAt;
    put(out, kGdtAt + kTssSelector,
        std::uint64_t{kTssLimit & 0xffff} | ((tss & 0xffffff) << 16) | (0x89ull << 40) | (((tss >> 24) & 0xff) << 56));
    put(out, kGdtAt + kTssSelector + 8, tss >> 32);

    put(out, kTssAt + 4, exception_stack_top(plan.base).value); // RSP0
    if (plan.always_switch_stacks)
        put(out, kTssAt + 0x24, exception_stack_top(plan.base).value); // IST1
    put(out, kTssAt + 102, static_cast<std::uint16_t>(kTssHead));      // I/O map base
    std::memset(out.data() + kTssAt + kTssHead, 0xff, kBitmapBytes + 1);
    for (const std::uint16_t port : plan.ports) {
        if (port == 0)
            continue;
        must_hold(port / 8u + 1 < kBitmapBytes);
        // A 32-bit OUT checks the bits of four ports.
        for (unsigned p = port; p < port + 4u; ++p)
            out[kTssAt + kTssHead + p / 8] &= ~std::byte{static_cast<unsigned char>(1u << (p % 8))};
    }
    if (plan.stubs != 0) {
        for (unsigned vector = 0; vector < 32; ++vector) {
            const std::uint64_t entry = plan.stubs + vector * plan.stride;
            // Interrupt gates; INT3 and INTO are allowed at CPL 3.
            const std::uint64_t dpl = vector == 3 || vector == 4 ? 3 : 0;
            put(out, kIdtAt + vector * 16,
                (entry & 0xffff) | (std::uint64_t{kKernelCode} << 16) |
                    (std::uint64_t{plan.always_switch_stacks ? 1u : 0u} << 32) | ((0x8e | dpl << 5) << 40) |
                    (((entry >> 16) & 0xffff) << 48));
            put(out, kIdtAt + vector * 16 + 8, entry >> 32);
        }
    }
}

GuestVirt exception_stack_top(GuestVirt base) { return base + kStackAt + kPageSize; }

kvm_sregs user_special_registers(GuestVirt tables, GuestPhys page_table_root, bool xsave) {
    kvm_sregs s{};
    s.cs = segment(kUserCode, true, 3);
    s.ss = segment(kUserData, false, 3);
    // Null selectors, as in Linux programs in 64-bit mode.
    s.ds.unusable = s.es.unusable = s.fs.unusable = s.gs.unusable = 1;
    s.gdt.base = tables.value + kGdtAt;
    s.gdt.limit = 10 * 8 - 1;
    s.idt.base = tables.value + kIdtAt;
    s.idt.limit = 32 * 16 - 1;
    s.tr.base = tables.value + kTssAt;
    s.tr.limit = kTssLimit;
    s.tr.selector = kTssSelector;
    s.tr.type = 0xb; // busy 64-bit TSS
    s.tr.present = 1;
    s.ldt.unusable = 1;
    s.cr0 = 0x80050033; // PG AM WP NE ET MP PE
    s.cr3 = page_table_root.value;
    s.cr4 = 0x10620; // FSGSBASE OSXMMEXCPT OSFXSR PAE
    if (xsave)
        s.cr4 |= 0x40000; // OSXSAVE
    s.efer = 0xd01;       // NXE LMA LME SCE
    s.apic_base = 0xfee00900;
    return s;
}

} // namespace tinykvm::kvm
