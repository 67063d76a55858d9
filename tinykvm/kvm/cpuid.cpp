#include "tinykvm/kvm/cpuid.hpp"

#include <cpuid.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "tinykvm/base/error.hpp"

namespace tinykvm::kvm {
namespace {

// XCR0 components that we save and restore: x87 0, SSE 1, AVX 2, AVX-512 5..7. Not AMX (8 KiB per thread, and Linux
// requires a permission first), and not PKRU (CR4.PKE stays off).
constexpr std::uint64_t kXcr0Wanted = 0xe7;

std::uint64_t read_xcr0() {
    std::uint32_t low, high;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (std::uint64_t{high} << 32) | low;
}

struct Regs {
    std::uint32_t a = 0, b = 0, c = 0, d = 0;
};
Regs host(std::uint32_t function, std::uint32_t index = 0) {
    Regs r;
    __cpuid_count(function, index, r.a, r.b, r.c, r.d);
    return r;
}

constexpr std::uint32_t bit(unsigned n) { return 1u << n; }

// Leaf 1 ECX: MONITOR, DTES64, DS-CPL, VMX, SMX, EST, TM2, PCID, DCA, x2APIC, TSC-deadline need privilege or
// devices that a machine does not have.
constexpr std::uint32_t kHide1C = bit(2) | bit(3) | bit(4) | bit(5) | bit(6) | bit(7) | bit(8) | bit(14) | bit(15) |
                                  bit(17) | bit(18) | bit(21) | bit(24);
// Leaf 7 EBX: SGX, HLE, RTM, MPX, PQM/PQE, Intel PT (aborted transactions would show exits to the guest).
constexpr std::uint32_t kHide7B = bit(2) | bit(4) | bit(11) | bit(12) | bit(14) | bit(15) | bit(25);
// Leaf 7 ECX: UMIP, PKU, OSPKE, WAITPKG, CET_SS, LA57, RDPID (its value would be the host's CPU), KL, ENQCMD, SGX_LC,
// PKS.
constexpr std::uint32_t kHide7C =
    bit(2) | bit(3) | bit(4) | bit(5) | bit(7) | bit(16) | bit(22) | bit(23) | bit(29) | bit(30) | bit(31);
// Leaf 7 EDX: UINTR, RTM_ALWAYS_ABORT, TSXLDTRK, PCONFIG, ARCH_LBR, CET_IBT, AMX (22, 24, 25), speculation controls.
constexpr std::uint32_t kHide7D = bit(5) | bit(11) | bit(13) | bit(16) | bit(18) | bit(19) | bit(20) | bit(22) |
                                  bit(24) | bit(25) | bit(26) | bit(27) | bit(28) | bit(29) | bit(30) | bit(31);
constexpr std::uint32_t kAvx512Leaf7B = bit(16) | bit(17) | bit(21) | bit(26) | bit(27) | bit(28) | bit(30) | bit(31);
constexpr std::uint32_t kAvx512Leaf7C = bit(1) | bit(6) | bit(11) | bit(12) | bit(14);
constexpr std::uint32_t kAvx512Leaf7D = bit(2) | bit(3) | bit(8) | bit(23);
constexpr std::uint32_t kAvxLeaf1C = bit(28) | bit(12) | bit(29); // AVX, FMA, F16C
constexpr std::uint32_t kAvxLeaf7B = bit(5);                      // AVX2
constexpr std::uint32_t kAvxLeaf7C = bit(9) | bit(10);            // VAES, VPCLMULQDQ

class Builder {
public:
    explicit Builder(CpuidTable& table) : table_(table) {}
    void add(std::uint32_t function, Regs r, std::optional<std::uint32_t> index = std::nullopt) {
        kvm_cpuid_entry2& e = table_.entries[table_.nent++];
        e.function = function;
        e.index = index.value_or(0);
        e.flags = index ? KVM_CPUID_FLAG_SIGNIFCANT_INDEX : 0;
        e.eax = r.a;
        e.ebx = r.b;
        e.ecx = r.c;
        e.edx = r.d;
    }

private:
    CpuidTable& table_;
};

enum class Level { v1 = 1, v2, v3, v4, native };

Level parse_baseline(const std::string& text) {
    if (text.empty() || text == "native")
        return Level::native;
    if (text == "x86-64-v2")
        return Level::v2;
    if (text == "x86-64-v3")
        return Level::v3;
    if (text == "x86-64-v4")
        return Level::v4;
    throw UserError(ExitCode::usage,
                    fmt::format("--cpu {}: unknown baseline; give native, x86-64-v2, x86-64-v3 or x86-64-v4", text));
}

// Feature sets of the x86-64 psABI, "Micro-Architecture Levels".
constexpr std::uint32_t kV2Leaf1C = bit(0) | bit(9) | bit(13) | bit(19) | bit(20) | bit(23);
constexpr std::uint32_t kV3Leaf1C = kV2Leaf1C | bit(12) | bit(22) | bit(26) | bit(27) | bit(28) | bit(29);
constexpr std::uint32_t kV3Leaf7B = bit(3) | bit(5) | bit(8);
constexpr std::uint32_t kV4Leaf7B = kV3Leaf7B | bit(16) | bit(17) | bit(28) | bit(30) | bit(31);
// Features of leaf 7 EBX that a narrowed CPU keeps in addition to its level: FSGSBASE and ERMS. AES and PCLMUL are left
// out on purpose. (The hypervisor bit, in leaf 1, is kept as well.)
constexpr std::uint32_t kAlways7B = bit(0) | bit(9);

void narrow(Level level, Regs& leaf1, Regs& leaf7, std::uint64_t& xcr0) {
    if (level == Level::native)
        return;
    const std::uint32_t c1 = level == Level::v2 ? kV2Leaf1C | bit(26) | bit(27) : kV3Leaf1C;
    const std::uint32_t b7 = level == Level::v2 ? 0 : level == Level::v3 ? kV3Leaf7B : kV4Leaf7B;
    const std::uint32_t need1 = level == Level::v2 ? kV2Leaf1C : kV3Leaf1C & ~bit(27);
    if ((leaf1.c & need1) != need1 || (leaf7.b & b7) != b7)
        throw UserError(ExitCode::usage,
                        "--cpu: this host's CPU has not all features of that baseline; choose a lower one");
    leaf1.c &= c1 | bit(31);
    leaf7.b &= b7 | kAlways7B;
    leaf7.c = 0;
    leaf7.d = 0;
    if (level == Level::v2)
        xcr0 &= 0x3;
    else if (level == Level::v3)
        xcr0 &= 0x7;
}

} // namespace

bool host_has_xsave() { return host(1).c & bit(27); }
bool host_has_protection_keys() { return host(7).c & bit(4); }

GuestCpu guest_cpu(const std::string& baseline, bool xsave) {
    const Level level = parse_baseline(baseline);
    GuestCpu cpu;
    Builder out(cpu.table);
    Regs leaf1 = host(1);
    Regs leaf7 = host(7);
    cpu.xcr0 = xsave ? read_xcr0() & kXcr0Wanted : 0;
    if (!(cpu.xcr0 & 0x4))
        cpu.xcr0 &= 0x3;
    if ((cpu.xcr0 & 0xe0) != 0xe0)
        cpu.xcr0 &= ~std::uint64_t{0xe0};

    leaf1.b = (leaf1.b & 0x0000ff00) | (1u << 16); // one logical CPU, APIC id 0
    leaf1.c = (leaf1.c & ~kHide1C) | bit(27) | bit(31);
    if (!xsave)
        leaf1.c &= ~(bit(26) | bit(27));
    leaf1.d &= ~(bit(7) | bit(9) | bit(12) | bit(18) | bit(21) | bit(22) | bit(28) | bit(29) | bit(31));
    leaf7.a = std::min(leaf7.a, 1u);
    leaf7.b = (leaf7.b & ~kHide7B) | bit(0);
    leaf7.c &= ~kHide7C;
    leaf7.d &= ~kHide7D;
    narrow(level, leaf1, leaf7, cpu.xcr0);
    if (!(cpu.xcr0 & 0x4)) {
        leaf1.c &= ~kAvxLeaf1C;
        leaf7.b &= ~kAvxLeaf7B;
        leaf7.c &= ~kAvxLeaf7C;
    }
    if (!(cpu.xcr0 & 0xe0)) {
        leaf7.b &= ~kAvx512Leaf7B;
        leaf7.c &= ~kAvx512Leaf7C;
        leaf7.d &= ~kAvx512Leaf7D;
    }

    const Regs leaf0 = host(0);
    out.add(0, {std::min(std::max(leaf0.a, 0xdu), 0x16u), leaf0.b, leaf0.c, leaf0.d});
    out.add(1, leaf1);
    if (leaf0.a >= 2)
        out.add(2, host(2));
    for (std::uint32_t i = 0; i < 8 && leaf0.a >= 4; ++i) { // caches
        Regs r = host(4, i);
        if ((r.a & 0x1f) != 0)
            r.a &= 0x3fff; // one core, and the cache is not shared
        out.add(4, r, i);
        if ((r.a & 0x1f) == 0)
            break;
    }
    out.add(7, leaf7, 0);
    if (leaf7.a >= 1) {
        Regs r = host(7, 1);
        // Keep only AVX-VNNI, AVX512-BF16 and AVX-IFMA, if the vector state allows them.
        std::uint32_t keep = 0;
        if (level == Level::native && (cpu.xcr0 & 0x4))
            keep |= bit(4) | bit(23);
        if (level == Level::native && (cpu.xcr0 & 0xe0))
            keep |= bit(5);
        out.add(7, {r.a & keep, 0, 0, 0}, 1);
    }

    // XSAVE (Intel SDM vol. 1, 13.2): standard-format size of the enabled components.
    cpu.xsave_bytes = xsave ? 576 : kFxsaveBytes;
    for (std::uint32_t i = 2; i < 8; ++i) {
        if (!(cpu.xcr0 & bit(i)))
            continue;
        const Regs r = host(0xd, i);
        cpu.xsave_bytes = std::max(cpu.xsave_bytes, r.a + r.b);
    }
    if (xsave) {
        out.add(0xd, {static_cast<std::uint32_t>(cpu.xcr0), cpu.xsave_bytes, cpu.xsave_bytes, 0}, 0);
        Regs d1 = host(0xd, 1);
        d1.a &= bit(0) | bit(1) | bit(2); // XSAVEOPT, XSAVEC, XGETBV(1); no supervisor states
        out.add(0xd, {d1.a, cpu.xsave_bytes, 0, 0}, 1);
    }
    for (std::uint32_t i = 2; i < 8; ++i)
        if (cpu.xcr0 & bit(i))
            out.add(0xd, host(0xd, i), i);
    if (leaf0.a >= 0x15)
        out.add(0x15, host(0x15));
    if (leaf0.a >= 0x16)
        out.add(0x16, host(0x16));

    // Hypervisor leaf: KVM's signature without paravirtual features.
    out.add(0x40000000, {0x40000001, 0x4b4d564b, 0x564b4d56, 0x4d});
    out.add(0x40000001, {0, 0, 0, 0});

    const Regs ext0 = host(0x80000000);
    out.add(0x80000000, {std::min(ext0.a, 0x80000008u), ext0.b, ext0.c, ext0.d});
    Regs ext1 = host(0x80000001);
    ext1.c &= bit(0) | bit(5) | bit(6) | bit(7) | bit(8) | bit(11) | bit(16) |
              bit(21); // LAHF, ABM, SSE4A, misaligned, prefetch, XOP, FMA4, TBM
    if (!(cpu.xcr0 & 0x4))
        ext1.c &= ~(bit(11) | bit(16));
    if (level != Level::native)
        ext1.c &= level == Level::v2 ? bit(0) : bit(0) | bit(5);
    ext1.d |= bit(11) | bit(20) | bit(29); // SYSCALL, NX, LM
    ext1.d &= ~(bit(26) | bit(27));        // no 1 GiB pages; RDTSCP's TSC_AUX would be the host's CPU number
    out.add(0x80000001, ext1);
    for (std::uint32_t f = 0x80000002; f <= std::min(ext0.a, 0x80000006u); ++f)
        out.add(f, host(f));
    if (ext0.a >= 0x80000007)
        out.add(0x80000007, {0, 0, 0, host(0x80000007).d & bit(8)}); // invariant TSC
    if (ext0.a >= 0x80000008) {
        Regs r = host(0x80000008);
        r.b = 0;
        r.c = 0;
        out.add(0x80000008, r);
    }
    return cpu;
}

unsigned physical_bits(const GuestCpu& cpu) {
    for (std::uint32_t i = 0; i < cpu.table.nent; ++i)
        if (cpu.table.entries[i].function == 0x8000'0008)
            return cpu.table.entries[i].eax & 0xff;
    return 36; // for CPUs without this leaf
}

} // namespace tinykvm::kvm
