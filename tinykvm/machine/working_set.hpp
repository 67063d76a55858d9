// The pages that a clone ever wrote to, as the kernel tells them: copied back after each invocation.
//
// A page written to for the first time costs a fault of the thread. Without one the set is what it was, and no question
// to the kernel is needed.
#pragma once
#include <cstdint>
#include <vector>

#include "tinykvm/machine/page_reset.hpp"
#include "tinykvm/memory/page_tables.hpp"

namespace tinykvm {

class WorkingSet final : public PageReset {
public:
    WorkingSet(GuestRam& ram, AddressSpace& space, const Image& image) : PageReset(ram, space, image) {}

    // These pages are the clone's own only to be mapped faster: as in the image until they are written to.
    void add_clean_copies(const FrameRun& frames);
    // Such pages of writable memory, with their page table entries: changed ones tell that they were written to. Once.
    void add_clean_copies(std::vector<UnwrittenPage> pages);
    // The host writes to it before each invocation.
    void never_clean(Frame frame);

    void look() override;
    std::uint64_t copy_back() override;
    void forget() override;

private:
    bool is_clean(Frame frame) const { return frame < clean_copies_.size() && clean_copies_[frame]; }
    void written(Frame frame);
    void ask_kernel();
    void shrink();
    void give_back_clean_copies();

    std::vector<Frame> frames_; // sorted: those of the image that this clone ever wrote to
    long minor_faults_seen_ = -1;
    // Pages that are not in frames_ though they are the clone's own.
    std::vector<bool> clean_copies_; // by frame; empty: there are none (any more)
    std::vector<UnwrittenPage> unwritten_;
    Frame next_clean_copy_ = 0; // those before have been given back
    unsigned resets_with_clean_copies_ = 0;
    // For shrink():
    std::vector<Frame> unchanged_;        // sorted: of frames_, what was as in the image at the last look
    std::vector<Frame> given_back_;       // sorted: copies that went back to the kernel at the last look
    std::vector<std::uint8_t> came_back_; // by frame: how often it was in the set again after that
    std::size_t give_back_ = 0;           // at most, at the next look
    std::uint64_t looks_ = 0;
    unsigned resets_since_look_ = 0;
};

} // namespace tinykvm
