#include "tinykvm/kvm/vm_pool.hpp"

namespace tinykvm::kvm {

PreparedVm::PreparedVm(const Kvm& kvm) : vm(kvm.create_vm()), vcpu(kvm, vm) {}

void VmPool::fill(const Kvm& kvm, unsigned count) {
    for (;;) {
        {
            const std::lock_guard lock(mutex_);
            if (ready_.size() >= count)
                return;
        }
        auto fresh = std::make_unique<PreparedVm>(kvm);
        const std::lock_guard lock(mutex_);
        ready_.push_back(std::move(fresh));
    }
}

bool VmPool::has_ready() const {
    const std::lock_guard lock(mutex_);
    return !ready_.empty();
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
