#pragma once
#include "tinykvm/machine/state.hpp"

namespace kvmserver::cli {

// The CPU that a machine without --cpu sees on this host. Throws UserError (no_kvm) if machines cannot run.
tinykvm::CpuState host_cpu();

} // namespace kvmserver::cli
