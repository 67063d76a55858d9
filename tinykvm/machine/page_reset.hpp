// Resets the memory of a clone: finds the pages of the image that the invocation wrote to, and copies them back. There
// are two ways to find them: WorkingSet works on every host, DirtyBits where the CPU sets dirty bits for guests.
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

// A writable page that the first invocation only reads. Its entry in the image is not dirty. The CPU (or KVM, which
// walks these tables for it) sets the dirty bit on the first write; until then a reset need not copy the page.
struct UnwrittenPage {
    GuestPhys entry_at;  // of the leaf entry
    std::uint64_t entry; // its value in the image, without the accessed bit
    Frame frame;
};

// Use after each invocation: find_dirty(), AddressSpace::reset(), copy_back().
class PageReset {
public:
    virtual ~PageReset() = default;
    PageReset(const PageReset&) = delete;
    PageReset& operator=(const PageReset&) = delete;

    // Reads what the invocation left in the page tables. AddressSpace::reset() would undo it.
    virtual void find_dirty() = 0;
    // Copies the pages back from the image. Returns how many. Throws HostError.
    virtual std::uint64_t copy_back() = 0;
    // Call this when all private copies went back to the kernel: the clone uses the image's own pages again.
    virtual void forget() = 0;
    // Number of pages of which the clone keeps a private copy between invocations.
    std::size_t own_pages() const { return own_pages_; }

protected:
    // The arguments must outlive this object.
    PageReset(GuestRam& ram, AddressSpace& space, const Image& image) : ram_(ram), space_(space), image_(image) {}
    void copy_pages(const std::vector<Frame>& frames);

    GuestRam& ram_;
    AddressSpace& space_;
    const Image& image_;
    std::size_t own_pages_ = 0;
};

// Removes the frames of page tables from `frames`. They need no copying: the journal undoes the host's changes, the CPU
// changes accessed and dirty bits only, and the program cannot reach them (make_lazy() checks that).
void erase_tables(const GuestRam& ram, const AddressSpace& space, std::vector<Frame>& frames);

// Gives the clone's private copies of these frames, if any, back to the kernel. Throws HostError, which names `what`.
void drop_copies(GuestRam& ram, const std::vector<FrameRun>& runs, const char* what);

} // namespace tinykvm
