// The pages that an invocation wrote to, as the CPU marked them in the page tables: the cheapest way, on hosts whose
// CPU does that for guests (kvm::HostKind::dirty_bits).
#pragma once
#include <cstdint>
#include <vector>

#include "tinykvm/kvm/vcpu.hpp"
#include "tinykvm/machine/page_reset.hpp"

namespace tinykvm {

class DirtyBits final : public PageReset {
public:
    // `vcpu`, which uses these page tables, outlives it.
    DirtyBits(GuestRam& ram, AddressSpace& space, const Image& image, kvm::Vcpu& vcpu);

    // The host writes to it by pointer.
    void add_host_page(Frame frame) { host_pages_.push_back(frame); }

    void look() override;
    std::uint64_t copy_back() override;
    void forget() override;

private:
    kvm::Vcpu& vcpu_;
    std::vector<Frame> host_pages_;
    std::vector<Frame> dirty_; // between look() and copy_back()
    std::vector<bool> own_;    // by frame: the clone has a copy
};

} // namespace tinykvm
