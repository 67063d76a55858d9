// What kind of KVM host this is, found out by running a tiny machine once per process (docs/HOSTS.md).
#pragma once
#include <string>

#include "tinykvm/kvm/kvm.hpp"

namespace tinykvm::kvm {

struct HostKind {
    // SYSCALL at CPL 3 arrives at CPL 3 (PVM) instead of CPL 0.
    bool pvm_entry = false;
    // A dirty bit cleared from outside is set again by the next write (two-level paging): the dirty-bit reset may be
    // used.
    bool dirty_bits = false;
    // Machines may use XSAVE, and what needs it (AVX). Without it threads' vector state is kept by FXSAVE.
    bool xsave = false;
    std::string name() const {
        return std::string(pvm_entry    ? "pvm"
                           : dirty_bits ? "hardware"
                                        : "hardware, shadow paging") +
               (xsave ? "" : ", without XSAVE: programs have no AVX");
    }
};

// Runs the probe on the first call, and again after one that threw. Thread-safe. Throws UserError(no_kvm), which names
// what KVM refuses, when the tiny machine does not work; HostError when the host is short of memory or descriptors.
const HostKind& host_kind(const Kvm& kvm);

} // namespace tinykvm::kvm
