// From options to what machines need: KVM, the policy, the program.
#pragma once
#include <future>
#include <memory>

#include "src/event_loop/listeners.hpp"
#include "src/setup/options.hpp"
#include "tinykvm/machine/machine.hpp"

namespace kvmserver {

struct Setup {
    tinykvm::kvm::Kvm kvm;
    std::unique_ptr<tinykvm::Policy> policy;
    tinykvm::MachineEnv env;
    tinykvm::ProgramSpec program;
    std::unique_ptr<Listeners> listeners;
    tinykvm::kvm::VmPool pool;
    std::future<void> probing; // of the host's kind, which takes milliseconds; ends before the rest
};

// For a program (run, snapshot).
std::unique_ptr<Setup> set_up_program(const Options& options);
// What is the same for every snapshot: KVM, what kind it is (found out by another thread), and a VM.
std::unique_ptr<Setup> begin_restored();
// For a restored machine: the snapshot's program, permissions and limits, with what the user gave instead.
std::unique_ptr<Setup> set_up_restored(const Options& options, const tinykvm::MachineState& state,
                                       std::unique_ptr<Setup> begun);

} // namespace kvmserver
