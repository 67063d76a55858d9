// How a reset puts the memory of a clone back: finds which pages of the image the invocation wrote to, and copies
// these. There are two ways of finding them: WorkingSet, on every host, and DirtyBits, where the CPU marks the page
// tables.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tinykvm/machine/state.hpp"
#include "tinykvm/memory/address_space.hpp"
#include "tinykvm/memory/guest_ram.hpp"
#include "tinykvm/memory/image.hpp"

namespace tinykvm {

// A page that the first invocation reads and may yet write to. Its entry in the image is not marked dirty, so that the
// CPU (or KVM, which walks these tables for it) marks it with the first write: until then a reset need not copy it.
struct UnwrittenPage {
    GuestPhys entry_at;  // of the leaf entry
    std::uint64_t entry; // what it is in the image, but for the accessed bit
    Frame frame;
};

class PageReset {
public:
    virtual ~PageReset() = default;
    PageReset(const PageReset&) = delete;
    PageReset& operator=(const PageReset&) = delete;

    // Looks at what the invocation left in the page tables: before AddressSpace::reset() undoes that.
    virtual void look() = 0;
    // Copies the pages back from the image, after AddressSpace::reset(). Returns how many. Throws HostError.
    virtual std::uint64_t copy_back() = 0;
    // All copies have gone back to the kernel: the clone has the image's own pages again.
    virtual void forget() = 0;
    // How many pages the clone keeps for itself between invocations.
    std::size_t own_pages() const { return own_pages_; }

protected:
    // All of them outlive it.
    PageReset(GuestRam& ram, AddressSpace& space, const Image& image) : ram_(ram), space_(space), image_(image) {}
    void copy_pages(const std::vector<Frame>& frames);

    GuestRam& ram_;
    AddressSpace& space_;
    const Image& image_;
    std::size_t own_pages_ = 0;
};

// Takes the frames of page tables out. They need no copying: what the host changes there its journal undoes, and what
// else is written are accessed and dirty bits. The program cannot reach them (make_lazy).
void erase_tables(const GuestRam& ram, const AddressSpace& space, std::vector<Frame>& frames);

// Gives the clone's copies of these frames back to the kernel, if there are any. `what` is for the error. Throws
// HostError.
void drop_copies(GuestRam& ram, const std::vector<FrameRun>& runs, const char* what);

} // namespace tinykvm
