#include "src/capture/large_pages.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <system_error>

#include "src/common/digest.hpp"
#include "tinykvm/base/parallel.hpp"
#include "tinykvm/machine/large_pages.hpp"
#include "tinykvm/memory/dirty_pages.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

// A large page costs a file, 2 MiB of disk and 2 MiB of memory (once for all programs that use it).
constexpr std::size_t kWorthHot = 8; // pages

std::vector<CopyName> copy_names(std::span<const LargePageState> pages) {
    std::vector<CopyName> names;
    for (const LargePageState& page : pages)
        names.push_back({Digest{page.sha256}, LargePages::kBytes});
    return names;
}

std::vector<std::byte> bytes_of(const MachineImage& image, GuestVirt at, const PageOfFrame& pages) {
    std::vector<std::byte> bytes;
    bytes.reserve(LargePages::kBytes);
    for (const Frame frame : frames_of_large(image, at)) {
        const std::span page = pages(frame);
        bytes.insert(bytes.end(), page.begin(), page.end());
    }
    return bytes;
}

} // namespace

void put_large_last(const MachineImage& image, std::vector<std::uint32_t>& hot) {
    std::vector<bool> is_hot(image.image->frames());
    for (const Frame frame : hot)
        is_hot[frame] = true;
    std::vector<Frame> last;
    for (const GuestVirt at : large_candidates(image)) {
        std::vector<Frame> frames = frames_of_large(image, at);
        std::erase_if(frames, [&](Frame frame) { return !is_hot[frame]; });
        if (frames.size() >= kWorthHot)
            last.insert(last.end(), frames.begin(), frames.end());
    }
    for (const Frame frame : last)
        is_hot[frame] = false;
    std::erase_if(hot, [&](Frame frame) { return !is_hot[frame]; });
    hot.insert(hot.end(), last.begin(), last.end());
}

std::vector<LargePageState> choose_large(const MachineImage& image, std::uint32_t hot) {
    std::vector<LargePageState> chosen;
    for (const GuestVirt at : large_candidates(image)) {
        std::vector<FrameRun> runs;
        for (const Frame frame : frames_of_large(image, at))
            if (frame < hot)
                append_frame(runs, frame);
        if (runs.size() == 1 && runs[0].count >= kWorthHot)
            chosen.push_back({at.value, {}, runs[0]});
    }
    in_parallel(chosen.size(), [&](std::size_t i) {
        chosen[i].sha256 = sha256(bytes_of(image, GuestVirt(chosen[i].at), pages_of(image))).bytes;
    });
    return chosen;
}

LargeCopies find_large(std::span<const LargePageState> wanted, const PageCache& cache) {
    LargeCopies found;
    if (wanted.empty() || !can_scan_pages())
        return found;
    try {
        auto pages = std::make_unique<LargePages>(wanted.size());
        std::size_t small = 0;
        const auto copies = cache.find_all(copy_names(wanted));
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            if (!copies[i]) {
                found.all = false;
            } else if (pages->add(copies[i].get())) {
                found.at.emplace_back(wanted[i].at);
                found.hot.push_back(wanted[i].hot);
            } else if (++small > 1 && pages->count() == 0) {
                return found; // this file system has no large pages
            }
        }
        if (pages->count() > 0)
            found.pages = std::move(pages);
    } catch (const std::system_error&) {
        return {}; // too many mappings: start without large pages
    }
    return found;
}

PageOfFrame pages_of(const MachineImage& image) {
    return [&memory = *image.image](Frame frame) -> std::span<const std::byte> {
        return {memory.data() + frame_address(frame).value, kPageSize};
    };
}

PageOfFrame pages_of(const SnapshotReader& reader) {
    constexpr std::size_t kMax = 16; // chunks; 2 MiB of addresses span few of them
    auto unpacked = std::make_shared<std::map<std::uint32_t, std::vector<std::byte>>>();
    return [&reader, unpacked](Frame frame) -> std::span<const std::byte> {
        static const std::array<std::byte, kPageSize> zero{};
        const auto number = reader.chunk_of(frame);
        if (!number)
            return zero;
        auto chunk = unpacked->find(*number);
        if (chunk == unpacked->end()) {
            if (unpacked->size() == kMax)
                unpacked->clear();
            const std::span pages = reader.unpack(*number);
            chunk = unpacked->emplace(*number, std::vector(pages.begin(), pages.end())).first;
        }
        const auto& runs = reader.chunks()[*number].runs;
        const auto run = std::ranges::find_if(runs, [&](const ChunkRun& r) { return frame - r.first < r.count; });
        return std::span(chunk->second).subspan(std::size_t{run->page + (frame - run->first)} * kPageSize, kPageSize);
    };
}

std::vector<LargePageState> large_without_copies(const MachineImage& image, const PageCache& cache) {
    std::vector<LargePageState> without;
    if (!can_scan_pages())
        return without; // this host cannot use them
    const auto copies = cache.find_all(copy_names(image.large_pages));
    for (std::size_t i = 0; i < copies.size(); ++i)
        if (!copies[i])
            without.push_back(image.large_pages[i]);
    return without;
}

void offer_large(const MachineImage& image, const PageCache& cache, std::span<const LargePageState> large,
                 const PageOfFrame& pages, const std::function<bool()>& may_continue) {
    for (const LargePageState& page : large) {
        if (!may_continue())
            return;
        cache.offer({Digest{page.sha256}, LargePages::kBytes}, bytes_of(image, GuestVirt(page.at), pages));
    }
}

} // namespace kvmserver
