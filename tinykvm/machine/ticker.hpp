// Interrupts machines that have run for a while without an exit, so that the guest kernel can switch threads, timers
// can fire, and limits on time hold.
#pragma once
#include <atomic>
#include <cstdint>

#include "tinykvm/kvm/vcpu.hpp"

namespace tinykvm {

// While one of these lives, its thread is inside run(): after each tick that passes, KVM_RUN returns; with `soon`,
// after 2 to 4 ms. Constructing and destroying it costs three atomic stores.
class RunningVcpu {
public:
    explicit RunningVcpu(kvm::Vcpu& vcpu, bool soon = false);
    ~RunningVcpu();
    RunningVcpu(const RunningVcpu&) = delete;
    RunningVcpu& operator=(const RunningVcpu&) = delete;
};

inline constexpr std::uint64_t kTickNs = 10'000'000;

} // namespace tinykvm
