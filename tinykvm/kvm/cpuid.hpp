// The CPUID that a guest sees: the host CPU's own, limited to what XCR0 enables and to what works inside a machine.
//
// KVM_GET_SUPPORTED_CPUID would suffice on hardware. On PVM it hides SSE3 and all later vector extensions, although
// they work (docs/HOSTS.md).
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "tinykvm/kvm/abi.hpp"

namespace tinykvm::kvm {

struct GuestCpu {
    CpuidTable table;
    std::uint64_t xcr0 = 0;        // x87, SSE, AVX, AVX-512 as far as the host enables them; 0: a CPU without XSAVE
    std::uint32_t xsave_bytes = 0; // size of a standard-format XSAVE area for xcr0, or of an FXSAVE area
};

inline constexpr std::uint32_t kFxsaveBytes = 512;

// Whether this host's kernel uses XSAVE (CPUID.1:ECX.OSXSAVE).
bool host_has_xsave();
bool host_has_protection_keys(); // and has turned them on: OSPKE

// `baseline` narrows the features of the host: "", "native", "x86-64-v2", "x86-64-v3" or "x86-64-v4". Without `xsave`
// (HostKind::xsave) the CPU has neither XSAVE nor AVX, and xcr0 is 0.
// Throws UserError(usage) for any other baseline, or when the host lacks it.
GuestCpu guest_cpu(const std::string& baseline, bool xsave);

// Width of its physical addresses in bits (CPUID 8000_0008h).
unsigned physical_bits(const GuestCpu& cpu);

} // namespace tinykvm::kvm
