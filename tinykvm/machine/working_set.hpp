// Copies back, after each invocation, all pages that the clone has ever written to. The kernel tells which ones
// (memory/dirty_pages.hpp).
//
// The first write to a page takes a page fault of the thread. If the thread had no fault, the set is unchanged and the
// kernel need not be asked.
#pragma once
#include <cstdint>
#include <vector>

#include "tinykvm/machine/page_reset.hpp"
#include "tinykvm/memory/page_tables.hpp"

namespace tinykvm {

class WorkingSet final : public PageReset {
public:
    WorkingSet(GuestRam& ram, AddressSpace& space, const Image& image) : PageReset(ram, space, image) {}

    // Adds clean copies: private copies that only make mapping faster. They equal the image until they are written to.
    void add_clean_copies(const FrameRun& frames);
    // The same for pages of writable memory: a changed page-table entry shows that one was written to. Call this at
    // most once.
    void add_clean_copies(std::vector<UnwrittenPage> pages);
    // A page that the host writes to before each invocation is no clean copy.
    void never_clean(Frame frame);

    void find_dirty() override;
    std::uint64_t copy_back() override;
    void forget() override;

private:
    bool is_clean(Frame frame) const { return frame < clean_copies_.size() && clean_copies_[frame]; }
    void written(Frame frame);
    void ask_kernel();
    void shrink();
    void give_back_clean_copies();

    std::vector<Frame> frames_; // sorted: frames of the image that this clone has ever written to
    long minor_faults_seen_ = -1;
    // Private copies that are not in frames_.
    std::vector<bool> clean_copies_; // by frame; empty: there are none (any more)
    std::vector<UnwrittenPage> unwritten_;
    Frame next_clean_copy_ = 0; // all before it have been given back
    unsigned resets_with_clean_copies_ = 0;
    // For shrink():
    std::vector<Frame> unchanged_;        // sorted: those of frames_ that equalled the image at the last look
    std::vector<Frame> given_back_;       // sorted: copies that went back to the kernel at the last look
    std::vector<std::uint8_t> came_back_; // by frame: how often it returned to the set after that
    std::size_t give_back_ = 0;           // limit of copies that go back at one look
    std::uint64_t looks_ = 0;
    unsigned resets_since_look_ = 0;
};

} // namespace tinykvm
