// Large pages of a snapshot's image (tinykvm/memory/large_pages.hpp). They are chosen when the snapshot is made and
// kept in the cache folder, named by their content, so that all snapshots of the same program share them. A start uses
// those that it finds there.
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

// Moves hot frames that large pages will contain to the end, ordered by address: a start that has these large pages
// skips the frames.
void put_large_last(const tinykvm::MachineImage& image, std::vector<std::uint32_t>& hot);

// Chooses the large pages that are worth a copy. The first `hot` frames of the image must be the hot ones, ordered by
// put_large_last().
std::vector<tinykvm::LargePageState> choose_large(const tinykvm::MachineImage& image, std::uint32_t hot);

// Large pages whose copies were found in the cache.
struct LargeCopies {
    std::unique_ptr<tinykvm::LargePages> pages; // nullptr if there are none
    std::vector<tinykvm::GuestVirt> at;         // address of each
    std::vector<tinykvm::FrameRun> hot;         // frames that they replace
    bool all = true;                            // all wanted pages have a copy
};
LargeCopies find_large(std::span<const tinykvm::LargePageState> wanted, const PageCache& cache);

// Returns the page of a frame, valid until the next call.
using PageOfFrame = std::function<std::span<const std::byte>(tinykvm::Frame)>;
PageOfFrame pages_of(const tinykvm::MachineImage& image); // which must be fully loaded
PageOfFrame pages_of(const SnapshotReader& reader); // which must outlive the result; throws UserError(bad_snapshot)

// The image's large pages that have no copy in the cache; empty on hosts that cannot use them.
std::vector<tinykvm::LargePageState> large_without_copies(const tinykvm::MachineImage& image, const PageCache& cache);
// Offers copies of `large` to the cache. Calls `may_continue` before each and stops when it returns false.
void offer_large(const tinykvm::MachineImage& image, const PageCache& cache,
                 std::span<const tinykvm::LargePageState> large, const PageOfFrame& pages,
                 const std::function<bool()>& may_continue);

} // namespace kvmserver
