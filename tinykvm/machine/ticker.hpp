// Interrupts machines that have run for a while without an exit, so that the guest kernel can switch threads, timers
// can fire, what was said leaves, and limits on time hold.
//
// A timer of each thread that runs machines counts its CPU time (timer_create(2), CLOCK_THREAD_CPUTIME_ID). So nobody
// needs to look, and a machine that waits or is rarely asked causes no interrupts. Linux notices such timers at its own
// ticks: CONFIG_HZ is 250 on most distributions, so a machine is interrupted every 4 ms.
#pragma once
#include "tinykvm/kvm/vcpu.hpp"

namespace tinykvm {

// Its thread runs `vcpu` while this object lives. KVM_RUN then returns after each tick. Costs two stores. The first one
// of a thread makes its timer, and throws HostError if there can be none.
class RunningVcpu {
public:
    explicit RunningVcpu(kvm::Vcpu& vcpu);
    ~RunningVcpu();
    RunningVcpu(const RunningVcpu&) = delete;
    RunningVcpu& operator=(const RunningVcpu&) = delete;
};

} // namespace tinykvm
