// Has KVM map the pages that a clone's first invocation is known to use before it runs, by two vCPUs where there is a
// second one.
#pragma once
#include <atomic>
#include <thread>

#include "tinykvm/machine/machine.hpp"

namespace tinykvm {

class Machine::Prefaulter {
public:
    // Before the clone is made: a thread takes a while to get going. `aside`: whether the clone will have a second
    // vCPU.
    Prefaulter(const MachineImage& image, bool aside);
    ~Prefaulter();
    Prefaulter(const Prefaulter&) = delete;
    Prefaulter& operator=(const Prefaulter&) = delete;

    // Once its copies are made: a page that is mapped already would be unmapped for its copy. Returns when all is
    // touched.
    void touch(Machine& machine);

private:
    enum Stage : int { idle, ready, given_up };
    void set(Stage stage);
    void run();

    const MachineImage& image_;
    Machine* machine_ = nullptr;
    std::size_t aside_ = 0; // pages for the second vCPU
    kvm_sregs special_{};   // for it
    std::atomic<int> stage_{idle};
    std::thread thread_;
};

} // namespace tinykvm
