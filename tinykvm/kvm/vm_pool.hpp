// VMs with their vCPU made ahead of time: creating one costs the kernel a millisecond that a start need not
// wait for.
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
    std::optional<Vcpu> second; // for work aside while the machine gets ready, if a CPU is to spare
    explicit PreparedVm(const Kvm& kvm);
    void set_cpuid(const GuestCpu& cpu);
};

// Thread-safe.
class VmPool {
public:
    // Makes VMs until `count` are ready.
    void fill(const Kvm& kvm, unsigned count);
    // Gives those that are ready a second vCPU.
    void add_second(const Kvm& kvm);
    bool has_second() const; // whether the next one has
    // A ready one, or a new one.
    std::unique_ptr<PreparedVm> take(const Kvm& kvm);

private:
    mutable std::mutex mutex_;
    std::vector<std::unique_ptr<PreparedVm>> ready_;
};

} // namespace tinykvm::kvm
