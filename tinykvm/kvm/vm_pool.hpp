// A pool of VMs with a vCPU, created in advance: creating one takes the kernel a millisecond that the start of a
// machine need not wait for.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tinykvm/kvm/cpuid.hpp"
#include "tinykvm/kvm/vcpu.hpp"

namespace tinykvm::kvm {

// A VM with a vCPU; no memory yet.
struct PreparedVm {
    Vm vm;
    Vcpu vcpu;
    std::optional<Vcpu> second; // prefaults pages while the machine starts
    explicit PreparedVm(const Kvm& kvm);
    void set_cpuid(const GuestCpu& cpu);
};

// Thread-safe.
class VmPool {
public:
    // Creates VMs until `count` are ready.
    void fill(const Kvm& kvm, unsigned count);
    // Gives all ready VMs a second vCPU.
    void add_second(const Kvm& kvm);
    bool has_second() const; // whether the VM that take() would return has one
    // A ready VM, or a new one if the pool is empty.
    std::unique_ptr<PreparedVm> take(const Kvm& kvm);

private:
    mutable std::mutex mutex_;
    std::vector<std::unique_ptr<PreparedVm>> ready_;
};

} // namespace tinykvm::kvm
