// Entropy regions: ranges of a program's memory that hold random state and are refilled before every invocation.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tinykvm/machine/state.hpp"
#include "tinykvm/memory/guest_ram.hpp"
#include "tinykvm/memory/page_tables.hpp"

namespace tinykvm {

// The entropy regions of an image, located in the memory of one clone by the image's page tables. A reset restores
// those tables, so the locations stay valid.
class EntropyRegions {
public:
    EntropyRegions() = default;
    // Throws UserError(bad_snapshot) for a region that is not entirely in the program's own writable memory. `regions`
    // must outlive this object.
    EntropyRegions(std::span<const EntropyRegion> regions, GuestRam& ram, const PageTables& tables);

    // Fills all regions. Call this before an invocation, while the clone equals its image.
    void fill(class RandomStream& random, std::uint32_t pid) const;
    // Whether a region is in another frame now, or the bytes around it (up to 64 on each side, within its page) differ
    // from the image.
    bool surroundings_changed(const GuestRam& ram, const PageTables& tables) const;
    // Frames that fill() writes to, each once.
    const std::vector<Frame>& frames() const { return frames_; }

private:
    struct Piece { // the part of one region in one page
        EntropyFill fill;
        std::span<std::byte> to;
        const std::uint8_t* constant; // null unless EntropyFill::constant
        GuestVirt at;
        Frame frame;
    };
    std::vector<Piece> pieces_;
    std::vector<Frame> frames_;
};

// The same for regions that were found in the image only after the machine was made of it: whether they are elsewhere
// in the machine by now.
bool entropy_may_have_moved(std::span<const EntropyRegion> regions, const struct MachineImage& image,
                            const GuestRam& ram, const PageTables& tables);

// Bounds the cost of filling, which each invocation pays outside of its own time limits.
inline constexpr std::size_t kMaxEntropyRegions = 4096;
inline constexpr std::uint64_t kMaxEntropyBytes = 16 << 20;
// Validates regions from a snapshot file. Throws UserError(bad_snapshot).
void check_entropy_regions(std::span<const EntropyRegion> regions);

} // namespace tinykvm
