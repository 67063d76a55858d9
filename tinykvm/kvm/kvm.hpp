// /dev/kvm and one virtual machine: RAII over the system and VM ioctls.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tinykvm/base/guest_addr.hpp"
#include "tinykvm/base/unique_fd.hpp"
#include "tinykvm/kvm/abi.hpp"

namespace tinykvm::kvm {

class Vm;

// An open /dev/kvm. Thread-safe.
class Kvm {
public:
    // Throws UserError(no_kvm) with advice when /dev/kvm is missing, not permitted or lacks a capability that we need.
    static Kvm open(const char* path = "/dev/kvm");
    Vm create_vm() const;
    std::size_t run_bytes() const { return run_bytes_; } // size of a vCPU's shared kvm_run mapping
    int check(unsigned long capability) const;           // result of KVM_CHECK_EXTENSION

private:
    explicit Kvm(UniqueFd fd) : fd_(std::move(fd)) {}
    UniqueFd fd_;
    std::size_t run_bytes_ = 0;
};

// One virtual machine, without memory and vCPUs at first.
class Vm {
public:
    // Maps `bytes` at `host` to guest-physical `at`. The host memory must be page-aligned and outlive the slot.
    void set_slot(std::uint32_t slot, GuestPhys at, std::uint64_t bytes, void* host, std::uint32_t flags = 0);
    void remove_slot(std::uint32_t slot) { set_slot(slot, GuestPhys(0), 0, nullptr); }
    UniqueFd create_vcpu(unsigned id) const;
    int fd() const { return fd_.get(); }

private:
    friend class Kvm;
    explicit Vm(UniqueFd fd) : fd_(std::move(fd)) {}
    UniqueFd fd_;
};

} // namespace tinykvm::kvm
