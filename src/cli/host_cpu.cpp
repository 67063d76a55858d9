#include "src/cli/host_cpu.hpp"

#include "tinykvm/kvm/cpuid.hpp"
#include "tinykvm/kvm/kvm.hpp"
#include "tinykvm/machine/restore.hpp"

namespace kvmserver::cli {

tinykvm::CpuState host_cpu() {
    const auto kvm = tinykvm::kvm::Kvm::open();
    return tinykvm::cpu_state(tinykvm::kvm::guest_cpu(kvm.supported_cpuid(), ""));
}

} // namespace kvmserver::cli
