#include "tinykvm/machine/page_reset.hpp"

#include <sys/mman.h>

#include <cstring>

#include "tinykvm/base/error.hpp"

namespace tinykvm {

void PageReset::copy_pages(const std::vector<Frame>& frames) {
    const std::byte* pristine = image_.data();
    for (const Frame frame : frames)
        std::memcpy(ram_.host(frame_address(frame)), pristine + frame_address(frame).value, kPageSize);
}

void erase_tables(const GuestRam& ram, const AddressSpace& space, std::vector<Frame>& frames) {
    std::vector<bool> table(ram.image_frames());
    space.tables().for_each_table([&](Frame frame) {
        if (frame < table.size())
            table[frame] = true;
    });
    std::erase_if(frames, [&](Frame frame) { return table[frame]; });
}

void drop_copies(GuestRam& ram, const std::vector<FrameRun>& runs, const char* what) {
    for (const FrameRun& run : runs)
        if (::madvise(ram.host(frame_address(run.first)), std::uint64_t{run.count} * kPageSize, MADV_DONTNEED) < 0)
            throw_errno(std::string("madvise(MADV_DONTNEED) ") + what);
}

} // namespace tinykvm
