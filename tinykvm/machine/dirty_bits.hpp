// Finds the pages that an invocation wrote to by the dirty bits in the page tables. This is the cheapest way. It needs
// a host whose CPU sets those bits for guests (kvm::HostKind::dirty_bits).
#pragma once
#include <cstdint>
#include <vector>

#include "tinykvm/kvm/vcpu.hpp"
#include "tinykvm/machine/page_reset.hpp"

namespace tinykvm {

class DirtyBits final : public PageReset {
public:
    // `vcpu` uses these page tables and must outlive this object.
    DirtyBits(GuestRam& ram, AddressSpace& space, const Image& image, kvm::Vcpu& vcpu);

    // Adds a page that the host writes to by pointer: it is copied back after every invocation.
    void add_host_page(Frame frame) { host_pages_.push_back(frame); }

    void find_dirty() override;
    std::uint64_t copy_back() override;
    void forget() override;

private:
    kvm::Vcpu& vcpu_;
    std::vector<Frame> host_pages_;
    std::vector<Frame> dirty_; // between find_dirty() and copy_back()
    std::vector<bool> own_;    // by frame: whether the clone has a private copy
};

} // namespace tinykvm
