// Finds the pages that a clone has written to or read. They determine the layout of an image.
#include <sys/mman.h>

#include <algorithm>
#include <array>

#include "tinykvm/abi/layout.hpp"
#include "tinykvm/machine/machine.hpp"
#include "tinykvm/memory/dirty_pages.hpp"

namespace tinykvm {
namespace {

// Collects accessed pages, and the pages before them in the same 8-page block if that is worth it. On a fault, KVM's
// shadow paging maps such a block from its first page on, as long as the pages are present (Linux
// arch/x86/kvm/mmu/paging_tmpl.h, pte_prefetch). Loading one more page costs about a third of a fault.
class MappedAlong {
public:
    explicit MappedAlong(std::vector<Frame>& out) : out_(&out) {}
    ~MappedAlong() { end_block(); }

    void add(GuestVirt page, std::uint64_t entry) {
        const std::uint64_t number = page.value / kPageSize;
        if (number / kBlock != block_) {
            end_block();
            block_ = number / kBlock;
        }
        const Page found{pte::frame(entry), (entry & pte::kAccessed) != 0};
        if (found.accessed) {
            ++accessed_;
            upto_ = count_ + 1;
            whole_ = count_ == number % kBlock; // no hole before it
        }
        pages_[count_++] = found;
    }

private:
    static constexpr std::size_t kBlock = 8, kWorth = 3;
    struct Page {
        Frame frame;
        bool accessed;
    };
    void end_block() {
        const bool fill = whole_ && accessed_ > 1 && upto_ - accessed_ <= kWorth * (accessed_ - 1);
        for (std::size_t i = 0; i < upto_; ++i)
            if (fill || pages_[i].accessed)
                out_->push_back(pages_[i].frame);
        count_ = accessed_ = upto_ = 0;
        whole_ = false;
    }
    std::vector<Frame>* out_;
    std::uint64_t block_ = 0;
    std::array<Page, kBlock> pages_{};
    std::size_t count_ = 0, accessed_ = 0, upto_ = 0;
    bool whole_ = false;
};

} // namespace

std::vector<FrameRun> Machine::written_frames() const {
    std::vector<FrameRun> runs;
    std::vector<Frame> frames = private_pages(ram_.host(GuestPhys(0)), ram_.image_frames());
    erase_tables(ram_, space_, frames);
    for (const Frame frame : frames)
        append_frame(runs, frame);
    return runs;
}

void Machine::forget_accessed() {
    for (const auto& [begin, region] : space_.regions())
        space_.tables().update(GuestVirt(begin), GuestVirt(region.end),
                               [](GuestVirt, std::uint64_t entry) { return entry & ~pte::kAccessed; });
}

Machine::AccessedFrames Machine::accessed_frames() {
    AccessedFrames found;
    std::vector<Frame> writable;
    space_.tables().for_each_table([&](Frame frame) { found.machine.push_back(frame); });
    for (const auto& [begin, region] : space_.regions()) {
        MappedAlong along(region.prot & PROT_WRITE ? writable : found.program);
        space_.tables().update(GuestVirt(begin), GuestVirt(region.end), [&](GuestVirt page, std::uint64_t entry) {
            if (page.value >= layout::kUserMax)
                found.machine.push_back(pte::frame(entry));
            else
                along.add(page, entry);
            return entry;
        });
    }
    // The host writes to these before each invocation.
    writable.insert(writable.end(), entropy_.frames().begin(), entropy_.frames().end());
    found.program.insert(found.program.end(), writable.begin(), writable.end());
    for (auto* frames : {&found.machine, &found.program})
        std::erase_if(*frames, [&](Frame frame) { return frame >= ram_.image_frames(); });
    return found;
}

} // namespace tinykvm
