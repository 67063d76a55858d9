// Prefaults the pages that a clone's first invocation is known to use: KVM maps them before the clone runs. If they are
// many, a second vCPU is made, which shares the work; a small function does without.
#pragma once
#include <atomic>
#include <thread>

#include "tinykvm/machine/machine.hpp"

namespace tinykvm {

class Machine::Prefaulter {
public:
    // Construct this before the clone is made, because a thread takes a while to start, and so that it ends before the
    // clone does. `second_vcpu`: whether there may be one.
    Prefaulter(const MachineImage& image, bool second_vcpu);
    ~Prefaulter();
    Prefaulter(const Prefaulter&) = delete;
    Prefaulter& operator=(const Prefaulter&) = delete;

    // The clone has its VM, and nothing else.
    void begin(Machine& machine);
    // Call this after the clone's private copies are made: copying a mapped page would unmap it. Returns when all
    // pages are touched.
    void prefault();

private:
    enum Stage : int { idle, begun, ready, given_up };
    void set(Stage stage);
    void run();
    bool share(std::span<const std::uint64_t> pages);

    const MachineImage& image_;
    Machine* machine_ = nullptr;
    bool shared_ = false;               // whether there was a second vCPU, which has gone through its list
    std::size_t second_vcpu_pages_ = 0; // number of pages for the second vCPU
    kvm_sregs special_{};               // its special registers
    std::atomic<int> stage_{idle};
    std::thread thread_;
};

} // namespace tinykvm
