#include "tinykvm/machine/dirty_bits.hpp"

#include <algorithm>

namespace tinykvm {

DirtyBits::DirtyBits(GuestRam& ram, AddressSpace& space, const Image& image, kvm::Vcpu& vcpu)
    : PageReset(ram, space, image), vcpu_(vcpu) {
    space_.track_host_writes(true);
}

void DirtyBits::find_dirty() {
    dirty_.clear();
    space_.tables().take_dirty([&](Frame frame) { dirty_.push_back(frame); });
}

// Copies the pages that the CPU marked as dirty and those that the host wrote to.
std::uint64_t DirtyBits::copy_back() {
    const std::vector<Frame> by_host = space_.take_host_dirty();
    dirty_.insert(dirty_.end(), by_host.begin(), by_host.end());
    dirty_.insert(dirty_.end(), host_pages_.begin(), host_pages_.end());
    std::erase_if(dirty_, [&](Frame frame) { return frame >= ram_.image_frames(); });
    std::sort(dirty_.begin(), dirty_.end());
    dirty_.erase(std::unique(dirty_.begin(), dirty_.end()), dirty_.end());
    copy_pages(dirty_);
    own_.resize(ram_.image_frames());
    for (const Frame frame : dirty_)
        if (!own_[frame]) {
            own_[frame] = true;
            ++own_pages_;
        }
    // The TLB may contain translations that are marked dirty. A changed CR3 (its ignored PWT bit) makes KVM flush it.
    vcpu_.special().cr3 ^= 8;
    vcpu_.special_changed();
    const std::size_t copied = dirty_.size();
    dirty_.clear();
    return copied;
}

void DirtyBits::forget() {
    own_.clear();
    own_pages_ = 0;
}

} // namespace tinykvm
