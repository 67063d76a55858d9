// Reset: restores a clone to the exact state of its image, at a cost that depends on what was dirtied. PageReset copies
// the pages.
#include <sys/mman.h>

#include "tinykvm/base/error.hpp"
#include "tinykvm/machine/machine.hpp"

namespace tinykvm {

bool Machine::settle() {
    if (at_wait_exit_)
        return true;
    start_at(kernel_.wait_resume);
    if (!vcpu_.settle())
        return false;
    const std::uint64_t cr3 = vcpu_.special().cr3; // keep its PWT bit, which DirtyBits toggles
    set_up_vcpu();
    vcpu_.special().cr3 = cr3;
    vcpu_.special_changed();
    at_wait_exit_ = true;
    return true;
}

ResetStats Machine::reset() {
    if (!settle())
        throw HostError(EBUSY, "reset of a vCPU that has an instruction to end");
    ResetStats stats;
    page_reset_->find_dirty();
    space_.reset();
    stats.pages_copied = page_reset_->copy_back();
    stats.pages_dropped = ram_.drop_headroom();
    handles_.reset();
    listeners_ = image_->listeners;
    start_at(kernel_.wait_resume);
    begins_ = true;
    if (!env_->options.keep_working_memory ||
        (page_reset_->own_pages() + ram_.kept_headroom() - ram_.arena_frames()) * kPageSize >
            env_->limits.keep_memory) {
        // More than a machine may keep: give the copies back to the kernel and learn the set again.
        if (::madvise(ram_.host(GuestPhys(0)), ram_.image()->bytes().size(), MADV_DONTNEED) < 0)
            throw_errno("madvise(MADV_DONTNEED) request machine");
        ram_.drop_kept_headroom();
        page_reset_->forget();
    }
    return stats;
}

void Machine::prepare() { refresh_identity(); }

} // namespace tinykvm
