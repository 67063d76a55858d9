// What a Setup is put together from, for programs and for snapshots.
#pragma once
#include "src/setup/options.hpp"
#include "src/setup/setup.hpp"

namespace kvmserver {

// Settings of every machine. `kvm` and `policy` outlive it.
tinykvm::MachineEnv make_env(const tinykvm::kvm::Kvm& kvm, const tinykvm::Policy* policy, const Options& options,
                             const tinykvm::Limits& limits);

// What a guest is told about its program and its host.
tinykvm::ProgramFacts facts_of(const tinykvm::ProgramSpec& program, const tinykvm::Limits& limits);

// The listeners, at the address of --listen where it was given.
void start_listeners(Setup& setup, const Options& options);

} // namespace kvmserver
