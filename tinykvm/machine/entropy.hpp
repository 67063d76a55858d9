// What every invocation finds random and its own: entropy regions, the 16 bytes of AT_RANDOM, the seed of the guest
// kernel's generator.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tinykvm/machine/state.hpp"
#include "tinykvm/memory/guest_ram.hpp"
#include "tinykvm/memory/page_tables.hpp"

namespace tinykvm {

// The regions of an image in the memory of one clone. The image's page tables, which every reset puts back, say where
// they lie.
class EntropyRegions {
public:
    EntropyRegions() = default;
    // Throws UserError(bad_snapshot) for a region that is not all in the program's own writable memory. `regions`
    // outlives this.
    EntropyRegions(std::span<const EntropyRegion> regions, GuestRam& ram, const PageTables& tables);

    // Before an invocation, when the clone is as its image.
    void fill(class RandomStream& random, std::uint32_t pid) const;
    // Whether the bytes around some region, in its page and up to a page's end before or behind it, are not those of
    // the image, or are in another frame now.
    bool surroundings_changed(const GuestRam& ram, const PageTables& tables) const;
    // Frames that it writes to, each once.
    const std::vector<Frame>& frames() const { return frames_; }

private:
    struct Piece { // of one region in one page
        EntropyFill fill;
        std::span<std::byte> to;
        const std::uint8_t* constant; // or of the process number
        GuestVirt at;
        Frame frame;
    };
    std::vector<Piece> pieces_;
    std::vector<Frame> frames_;
};

// Filling them costs each invocation, outside of its own time.
inline constexpr std::size_t kMaxEntropyRegions = 4096;
inline constexpr std::uint64_t kMaxEntropyBytes = 16 << 20;
// Whether they can be what a snapshot file says: throws UserError(bad_snapshot).
void check_entropy_regions(std::span<const EntropyRegion> regions);

} // namespace tinykvm
