// Finds out what kind of KVM host this is, by running a tiny machine (docs/HOSTS.md): once per process, or once in the
// process that others are forked from.
#pragma once
#include <string>

#include "tinykvm/kvm/kvm.hpp"

namespace tinykvm::kvm {

struct HostKind {
    // SYSCALL at CPL 3 arrives at CPL 3 (PVM) instead of CPL 0.
    bool pvm_entry = false;
    // When the host clears a dirty bit, the next write sets it again (two-level paging): the dirty-bit reset works.
    bool dirty_bits = false;
    // Machines may use XSAVE and what needs it (AVX). Without it, FXSAVE saves the vector state of threads.
    bool xsave = false;
    // Programs can change PKRU: PVM runs them with the host's CR4.PKE, whatever their CPUID says. Its KVM_SET_XSAVE
    // refuses PKRU then, so the guest kernel sets it back.
    bool protection_keys = false;
    std::string name() const {
        return std::string(pvm_entry    ? "pvm"
                           : dirty_bits ? "hardware"
                                        : "hardware, shadow paging") +
               (xsave ? "" : ", without XSAVE: programs have no AVX");
    }
};

// Runs the probe on the first call, and again if that threw. Thread-safe. Throws UserError(no_kvm), which names what
// KVM refuses, when the tiny machine does not work, and HostError when the host is short of memory or descriptors.
const HostKind& host_kind(const Kvm& kvm);
// Whether host_kind() returns without running the probe: a process that is forked from one that has, knows it, too.
bool host_kind_is_known();

} // namespace tinykvm::kvm
