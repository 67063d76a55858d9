#include "src/cli/host_cpu.hpp"

#include <algorithm>
#include <span>

#include "tinykvm/kvm/cpuid.hpp"
#include "tinykvm/kvm/kvm.hpp"

namespace kvmserver::cli {

tinykvm::CpuState host_cpu() {
    const auto kvm = tinykvm::kvm::Kvm::open();
    const tinykvm::kvm::GuestCpu cpu = tinykvm::kvm::guest_cpu(kvm.supported_cpuid(), "");
    tinykvm::CpuState state;
    state.xcr0 = cpu.xcr0;
    const auto count = std::min(cpu.table.nent, tinykvm::kvm::kMaxCpuidEntries);
    for (const kvm_cpuid_entry2& leaf : std::span(cpu.table.entries).first(count))
        state.cpuid.push_back({.function = leaf.function,
                               .index = leaf.index,
                               .flags = leaf.flags,
                               .eax = leaf.eax,
                               .ebx = leaf.ebx,
                               .ecx = leaf.ecx,
                               .edx = leaf.edx});
    return state;
}

} // namespace kvmserver::cli
