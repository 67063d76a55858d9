// A pool of VMs with a vCPU, created in advance: creating one takes the kernel a millisecond that the start of a
// machine need not wait for.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tinykvm/kvm/vcpu.hpp"

namespace tinykvm::kvm {

// A VM with a vCPU; no memory yet.
struct PreparedVm {
    Vm vm;
    Vcpu vcpu;
    std::optional<Vcpu> second; // made only for a machine with many pages to prefault
    explicit PreparedVm(const Kvm& kvm);
};

// Thread-safe.
class VmPool {
public:
    // Creates VMs until `count` are ready.
    void fill(const Kvm& kvm, unsigned count);
    bool has_ready() const; // whether take() would return one without creating it
    // A ready VM, or a new one if the pool is empty.
    std::unique_ptr<PreparedVm> take(const Kvm& kvm);

private:
    mutable std::mutex mutex_;
    std::vector<std::unique_ptr<PreparedVm>> ready_;
};

} // namespace tinykvm::kvm
