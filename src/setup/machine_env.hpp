// Parts of a Setup that programs and snapshots share.
#pragma once
#include "src/event_loop/event_loop.hpp"
#include "src/setup/options.hpp"
#include "src/setup/setup.hpp"

namespace kvmserver {

// Settings of every machine. `kvm` and `policy` must outlive the result.
tinykvm::MachineEnv make_env(const tinykvm::kvm::Kvm& kvm, const tinykvm::Policy* policy, const Options& options,
                             const tinykvm::Limits& limits);

// What the guest sees of its program and host.
tinykvm::ProgramFacts facts_of(const tinykvm::ProgramSpec& program, const tinykvm::Limits& limits);

// The listeners of a machine that is cloned.
EventLoop::Own own_listeners(const Setup& setup);

// Creates the listeners; --listen overrides the first one's address.
void start_listeners(Setup& setup, const Options& options);

} // namespace kvmserver
