// Prefaults the pages that a clone's first invocation is known to use: KVM maps them before the clone runs. A second
// vCPU shares the work if there is one.
#pragma once
#include <atomic>
#include <thread>

#include "tinykvm/machine/machine.hpp"

namespace tinykvm {

class Machine::Prefaulter {
public:
    // Construct this before the clone is made, because a thread takes a while to start. `second_vcpu`: whether the
    // clone will have a second vCPU.
    Prefaulter(const MachineImage& image, bool second_vcpu);
    ~Prefaulter();
    Prefaulter(const Prefaulter&) = delete;
    Prefaulter& operator=(const Prefaulter&) = delete;

    // Call this after the clone's private copies are made: copying a mapped page would unmap it. Returns when all
    // pages are touched.
    void prefault(Machine& machine);

private:
    enum Stage : int { idle, ready, given_up };
    void set(Stage stage);
    void run();

    const MachineImage& image_;
    Machine* machine_ = nullptr;
    std::size_t second_vcpu_pages_ = 0; // number of pages for the second vCPU
    kvm_sregs special_{};               // its special registers
    std::atomic<int> stage_{idle};
    std::thread thread_;
};

} // namespace tinykvm
