#include "src/cli/doctor/host_cpu.hpp"

#include "tinykvm/kvm/cpuid.hpp"
#include "tinykvm/machine/restore.hpp"

namespace kvmserver::cli {

tinykvm::CpuState host_cpu() { return tinykvm::cpu_state(tinykvm::kvm::guest_cpu("", tinykvm::kvm::host_has_xsave())); }

} // namespace kvmserver::cli
