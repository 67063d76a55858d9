// Interrupts machines that have run for a while without an exit, so that the guest kernel can switch threads, timers
// can fire, and limits on time hold.
#pragma once
#include <atomic>
#include <cstdint>

#include "tinykvm/kvm/vcpu.hpp"

namespace tinykvm {

// Its thread runs `vcpu` while this object lives. KVM_RUN then returns after each tick, or with `soon` after 2 to 4 ms.
// Construction and destruction cost a few atomic operations.
class RunningVcpu {
public:
    explicit RunningVcpu(kvm::Vcpu& vcpu, bool soon = false);
    ~RunningVcpu();
    RunningVcpu(const RunningVcpu&) = delete;
    RunningVcpu& operator=(const RunningVcpu&) = delete;
};

inline constexpr std::uint64_t kTickNs = 10'000'000;

} // namespace tinykvm
