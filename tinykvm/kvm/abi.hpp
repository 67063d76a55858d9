// The only include of <linux/kvm.h>.
//
// In C++, __DECLARE_FLEX_ARRAY of Debian 12's header makes structs with a flexible array four bytes too large. ioctl
// numbers derived from their sizes are then wrong. The ones here use the true sizes.
#pragma once
#include <linux/kvm.h>
#include <sys/ioctl.h>

#include <cstdint>

namespace tinykvm::kvm {

inline constexpr unsigned long kSetCpuid2 = _IOC(_IOC_WRITE, KVMIO, 0x90, 8);
inline constexpr unsigned long kGetMsrs = _IOC(_IOC_READ | _IOC_WRITE, KVMIO, 0x88, 8);
inline constexpr unsigned long kSetMsrs = _IOC(_IOC_WRITE, KVMIO, 0x89, 8);

inline constexpr unsigned kMaxCpuidEntries = 256;
struct CpuidTable { // struct kvm_cpuid2 with room
    std::uint32_t nent = 0;
    std::uint32_t padding = 0;
    kvm_cpuid_entry2 entries[kMaxCpuidEntries] = {};
};
static_assert(offsetof(CpuidTable, entries) == 8);

struct MsrTable { // struct kvm_msrs with room
    std::uint32_t nmsrs = 0;
    std::uint32_t pad = 0;
    kvm_msr_entry entries[16] = {};
};
static_assert(offsetof(MsrTable, entries) == 8);

} // namespace tinykvm::kvm
