// Turns options into what machines need: KVM, the policy, the program.
#pragma once
#include <future>
#include <memory>

#include "src/event_loop/listeners.hpp"
#include "src/setup/options.hpp"
#include "tinykvm/machine/machine.hpp"

namespace kvmserver {

// What machines share. Must outlive them. Members are destroyed in reverse order.
struct Setup {
    tinykvm::kvm::Kvm kvm;
    std::unique_ptr<tinykvm::Policy> policy;
    tinykvm::MachineEnv env;
    tinykvm::ProgramSpec program;
    std::unique_ptr<Listeners> listeners;
    tinykvm::kvm::VmPool pool;
    // Probes the host's kind, which takes milliseconds; not valid() if that is known. Destroyed first, which waits.
    std::future<void> probing;
};

// Set-up for a program (run, snapshot).
std::unique_ptr<Setup> set_up_program(const Options& options);
// The part that does not depend on the snapshot: opens KVM, probes its kind on another thread if it is
// not known, and creates a VM.
std::unique_ptr<Setup> begin_restored();
// Completes `begun` for a restored machine, with the snapshot's program, permissions and limits, overridden by the
// user's options.
std::unique_ptr<Setup> set_up_restored(const Options& options, const tinykvm::MachineState& state,
                                       std::unique_ptr<Setup> begun);

} // namespace kvmserver
