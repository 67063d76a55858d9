#pragma once
#include "tinykvm/machine/state.hpp"

namespace kvmserver::cli {

// The CPU that a machine without --cpu would see here. Throws UserError (no_kvm) when machines cannot run.
tinykvm::CpuState host_cpu();

} // namespace kvmserver::cli
