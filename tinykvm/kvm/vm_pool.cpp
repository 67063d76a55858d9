#include "tinykvm/kvm/vm_pool.hpp"

namespace tinykvm::kvm {

PreparedVm::PreparedVm(const Kvm& kvm, bool with_second) : vm(kvm.create_vm()), vcpu(kvm, vm) {
    if (with_second)
        second.emplace(kvm, vm, 1);
}

void PreparedVm::set_cpuid(const GuestCpu& cpu) {
    vcpu.set_cpuid(cpu.table);
    if (second)
        second->set_cpuid(cpu.table);
}

void VmPool::fill(const Kvm& kvm, unsigned count, bool with_second) {
    for (;;) {
        {
            const std::lock_guard lock(mutex_);
            if (ready_.size() >= count)
                return;
        }
        auto fresh = std::make_unique<PreparedVm>(kvm, with_second);
        const std::lock_guard lock(mutex_);
        ready_.push_back(std::move(fresh));
    }
}

std::unique_ptr<PreparedVm> VmPool::take(const Kvm& kvm) {
    {
        const std::lock_guard lock(mutex_);
        if (!ready_.empty()) {
            auto out = std::move(ready_.back());
            ready_.pop_back();
            return out;
        }
    }
    return std::make_unique<PreparedVm>(kvm);
}

} // namespace tinykvm::kvm
