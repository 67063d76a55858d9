#include "src/runner/large_pages.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <system_error>

#include "src/snapshot/digest.hpp"
#include "src/snapshot/text.hpp"
#include "tinykvm/machine/large_pages.hpp"
#include "tinykvm/memory/dirty_pages.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

// A large page costs a file, 2 MiB of disk and, once for all programs that use it, of memory.
constexpr std::size_t kWorthHot = 8; // pages

std::string copy_name(const LargePageState& page) { return "large-" + to_hex(page.sha256); }

std::vector<std::byte> bytes_of(const MachineImage& image, GuestVirt at, const PageOfFrame& pages) {
    std::vector<std::byte> bytes;
    bytes.reserve(LargePages::kBytes);
    for (const Frame frame : frames_of_large(image, at)) {
        const std::span page = pages(frame);
        bytes.insert(bytes.end(), page.begin(), page.end());
    }
    return bytes;
}

std::array<std::uint8_t, 32> digest_of(std::span<const std::byte> bytes) {
    std::array<std::uint8_t, 32> digest{};
    const auto raw = from_hex(sha256_of(bytes));
    std::copy(raw->begin(), raw->end(), digest.begin());
    return digest;
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
            chosen.push_back({at.value, digest_of(bytes_of(image, at, pages_of(image))), runs[0]});
    }
    return chosen;
}

LargeCopies find_large(std::span<const LargePageState> wanted, const UnpackedCache& cache) {
    LargeCopies found;
    if (wanted.empty() || !can_scan_pages())
        return found;
    try {
        auto pages = std::make_unique<LargePages>(wanted.size());
        std::size_t small = 0;
        for (const LargePageState& page : wanted) {
            const auto copy = cache.find(copy_name(page), LargePages::kBytes);
            if (!copy) {
                found.all = false;
            } else if (pages->add(copy->file.get())) {
                found.at.emplace_back(page.at);
                found.hot.push_back(page.hot);
            } else if (++small > 1 && pages->count() == 0) {
                return found; // the file system has none
            }
        }
        if (pages->count() > 0)
            found.pages = std::move(pages);
    } catch (const std::system_error&) {
        return {}; // no more mappings: it does without
    }
    return found;
}

PageOfFrame pages_of(const MachineImage& image) {
    return [&memory = *image.image](Frame frame) -> std::span<const std::byte> {
        return {memory.data() + frame_address(frame).value, kPageSize};
    };
}

PageOfFrame pages_of(const SnapshotReader& reader) {
    constexpr std::size_t kMost = 16; // chunks: 2 MiB of addresses have few
    auto unpacked = std::make_shared<std::map<std::uint32_t, std::vector<std::byte>>>();
    return [&reader, unpacked](Frame frame) -> std::span<const std::byte> {
        static const std::array<std::byte, kPageSize> zero{};
        const auto number = reader.chunk_of(frame);
        if (!number)
            return zero;
        auto chunk = unpacked->find(*number);
        if (chunk == unpacked->end()) {
            if (unpacked->size() == kMost)
                unpacked->clear();
            const std::span pages = reader.unpack(*number);
            chunk = unpacked->emplace(*number, std::vector(pages.begin(), pages.end())).first;
        }
        const auto& runs = reader.chunks()[*number].runs;
        const auto run = std::ranges::find_if(runs, [&](const ChunkRun& r) { return frame - r.first < r.count; });
        return std::span(chunk->second).subspan(std::size_t{run->page + (frame - run->first)} * kPageSize, kPageSize);
    };
}

void keep_large(const MachineImage& image, const UnpackedCache& cache, const PageOfFrame& pages, const std::function<bool()>& go_on) {
    if (!can_scan_pages())
        return; // nobody would use them
    for (const LargePageState& page : image.large_pages) {
        if (!go_on())
            return;
        if (cache.find(copy_name(page), LargePages::kBytes))
            continue;
        const std::vector<std::byte> bytes = bytes_of(image, GuestVirt(page.at), pages);
        if (digest_of(bytes) == page.sha256) // else it would be another program's
            cache.keep(copy_name(page), bytes);
    }
}

} // namespace kvmserver
