// Large pages of a snapshot's image (tinykvm/memory/large_pages.hpp): chosen when it is made, kept in the cache folder
// by what is in them, so that all snapshots of the same program have the same ones, and used by a start that finds them
// there.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "src/snapshot/page_cache.hpp"
#include "src/snapshot/reader.hpp"
#include "tinykvm/machine/machine.hpp"
#include "tinykvm/machine/state.hpp"
#include "tinykvm/memory/large_pages.hpp"

namespace kvmserver {

// Moves the hot frames that large pages will have to the end, by address: a start that has these pages leaves the
// frames out.
void put_large_last(const tinykvm::MachineImage& image, std::vector<std::uint32_t>& hot);

// The large pages worth having of an image whose first `hot` frames are the hot ones, ordered so.
std::vector<tinykvm::LargePageState> choose_large(const tinykvm::MachineImage& image, std::uint32_t hot);

// Those that can be had now.
struct LargeCopies {
    std::unique_ptr<tinykvm::LargePages> pages; // none: nullptr
    std::vector<tinykvm::GuestVirt> at;         // of each
    std::vector<tinykvm::FrameRun> hot;         // frames that they make needless
    bool all = true;                            // there are no others
};
LargeCopies find_large(std::span<const tinykvm::LargePageState> wanted, const PageCache& cache);

// The page of a frame, good until the next call.
using PageOfFrame = std::function<std::span<const std::byte>(tinykvm::Frame)>;
PageOfFrame pages_of(const tinykvm::MachineImage& image); // all of which is there
PageOfFrame pages_of(const SnapshotReader& reader);       // which must outlive it; throws UserError(bad_snapshot)

// Those that the cache has no copies of, where they can be used; and makes these, for as long as `go_on` says
// so before each.
std::vector<tinykvm::LargePageState> large_without_copies(const tinykvm::MachineImage& image, const PageCache& cache);
void offer_large(const tinykvm::MachineImage& image, const PageCache& cache,
                 std::span<const tinykvm::LargePageState> large, const PageOfFrame& pages,
                 const std::function<bool()>& go_on);

} // namespace kvmserver
