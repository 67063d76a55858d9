#include "src/snapshot/plan.hpp"

#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_map>

#include "src/snapshot/address_order.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/guest_addr.hpp"
#include "tinykvm/base/parallel.hpp"
#include "tinykvm/base/zero.hpp"

namespace kvmserver {

namespace {

using tinykvm::kPageSize;

std::span<const std::byte> page_of(std::span<const std::byte> memory, std::uint32_t frame) {
    return memory.subspan(std::size_t{frame} * kPageSize, kPageSize);
}

struct Range {
    std::size_t begin, end; // frames
};

// Frames that may have data: holes of the file have none.
std::vector<Range> data_ranges(std::size_t frames, int fd) {
    if (fd < 0)
        return {{0, frames}};
    std::vector<Range> ranges;
    for (off_t at = 0; (at = ::lseek(fd, at, SEEK_DATA)) >= 0;) {
        const off_t end = ::lseek(fd, at, SEEK_HOLE);
        if (end < 0)
            break;
        const auto limit = std::min<std::size_t>((static_cast<std::size_t>(end) + kPageSize - 1) / kPageSize, frames);
        ranges.push_back({std::min(static_cast<std::size_t>(at) / kPageSize, limit), limit});
        at = end;
    }
    if (errno != ENXIO) // past the last data
        tinykvm::throw_errno("lseek guest memory");
    return ranges;
}

// Of each frame.
struct Contents {
    std::vector<std::uint8_t> open;    // it is not zero, and in no chunk yet
    std::vector<std::uint64_t> hashes; // of those
};

// Reads all of guest memory, and so takes most of the time of a plan.
Contents look_at(std::span<const std::byte> memory, int fd) {
    constexpr std::size_t kAtOnce = 1024; // frames
    const std::size_t frames = memory.size() / kPageSize;
    std::vector<Range> parts;
    for (const Range& range : data_ranges(frames, fd))
        for (std::size_t begin = range.begin; begin < range.end; begin += kAtOnce)
            parts.push_back({begin, std::min(range.end, begin + kAtOnce)});
    Contents contents{std::vector<std::uint8_t>(frames), std::vector<std::uint64_t>(frames)};
    tinykvm::in_parallel(parts.size(), [&](std::size_t part) {
        for (std::size_t frame = parts[part].begin; frame < parts[part].end; ++frame) {
            const auto page = page_of(memory, static_cast<std::uint32_t>(frame));
            if (tinykvm::is_zero(page))
                continue;
            contents.open[frame] = 1;
            contents.hashes[frame] = XXH3_64bits(page.data(), page.size());
        }
    });
    return contents;
}

// Collects hot or cold frames into chunks.
class Gatherer {
public:
    Gatherer(std::span<const std::byte> memory, std::span<const std::uint64_t> hashes,
             std::span<const std::uint32_t> ranks, bool hot, Plan& plan)
        : memory_(memory), hashes_(hashes), ranks_(ranks), hot_(hot), lengths_(hot ? kHotLengths : kColdLengths),
          plan_(plan) {}

    void add(std::uint32_t frame) {
        const auto page = page_of(memory_, frame);
        const std::uint64_t hash = hashes_[frame];
        const auto [known, is_new] = by_content_.try_emplace(hash, frame);
        if (!is_new && std::memcmp(page.data(), page_of(memory_, known->second).data(), kPageSize) == 0) {
            copies_[known->second].push_back(frame);
            ++plan_.copied_pages;
            return;
        }
        frames_.push_back(frame);
        ++plan_.stored_pages;
        const std::size_t pages = frames_.size() - (ends_.empty() ? 0 : ends_.back());
        if (pages == lengths_.most || (pages >= lengths_.least && (hash & (lengths_.one_in - 1)) == 0))
            ends_.push_back(frames_.size());
    }

    void finish() { // call when all frames have been added: only then all duplicates are known
        ends_.push_back(frames_.size());
        std::size_t begin = 0;
        for (const std::size_t end : ends_) {
            if (begin != end)
                close_chunk(std::span(frames_).subspan(begin, end - begin));
            begin = end;
        }
    }

private:
    static void append(std::vector<ChunkRun>& runs, std::uint32_t frame, std::uint32_t page) {
        if (!runs.empty()) {
            ChunkRun& last = runs.back();
            if (last.first + last.count == frame && last.page + last.count == page) {
                ++last.count;
                return;
            }
        }
        runs.push_back({frame, 1, page});
    }

    void close_chunk(std::span<std::uint32_t> frames) {
        std::sort(frames.begin(), frames.end(), [&](auto a, auto b) { return ranks_[a] < ranks_[b]; });
        ChunkInfo chunk;
        chunk.hot = hot_;
        chunk.pages = static_cast<std::uint32_t>(frames.size());
        std::vector<std::pair<std::uint32_t, std::uint32_t>> copies; // (frame, page) of duplicates
        for (std::uint32_t page = 0; page < chunk.pages; ++page) {
            append(chunk.runs, frames[page], page);
            if (const auto found = copies_.find(frames[page]); found != copies_.end())
                for (const std::uint32_t frame : found->second)
                    copies.emplace_back(frame, page);
        }
        std::sort(copies.begin(), copies.end());
        const auto own = chunk.runs.size();
        std::vector<ChunkRun> more;
        for (const auto& [frame, page] : copies)
            append(more, frame, page);
        chunk.runs.reserve(own + more.size());
        chunk.runs.insert(chunk.runs.end(), more.begin(), more.end());
        plan_.chunks.push_back(std::move(chunk));
    }

    std::span<const std::byte> memory_;
    std::span<const std::uint64_t> hashes_; // of the pages of `memory_`
    std::span<const std::uint32_t> ranks_;
    bool hot_;
    ChunkLengths lengths_;
    Plan& plan_;
    std::vector<std::uint32_t> frames_; // frames with distinct content
    std::vector<std::size_t> ends_;     // chunk ends, as indexes into frames_
    std::unordered_map<std::uint64_t, std::uint32_t> by_content_;
    std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> copies_; // duplicates of each stored frame
};

} // namespace

Plan plan_chunks(std::span<const std::byte> memory, std::span<const std::uint32_t> ranks,
                 std::span<const std::uint32_t> hot_frames, int memory_fd, std::span<const tinykvm::FrameRun> apart) {
    Plan plan;
    auto [open, hashes] = look_at(memory, memory_fd);
    plan.zero_pages = static_cast<std::uint32_t>(std::count(open.begin(), open.end(), 0));
    std::vector<bool> is_apart(open.size());
    for (const tinykvm::FrameRun& run : apart)
        std::fill_n(is_apart.begin() + run.first, run.count, true);
    Gatherer hot(memory, hashes, ranks, true, plan), hot_apart(memory, hashes, ranks, true, plan),
        cold(memory, hashes, ranks, false, plan);
    for (const std::uint32_t frame : hot_frames)
        if (frame < open.size() && open[frame]) {
            (is_apart[frame] ? hot_apart : hot).add(frame);
            open[frame] = 0;
        }
    hot.finish();
    hot_apart.finish();
    std::vector<std::uint32_t> by_rank(ranks.size());
    for (std::uint32_t frame = 0; frame < ranks.size(); ++frame)
        by_rank[ranks[frame]] = frame;
    for (const std::uint32_t frame : by_rank)
        if (open[frame])
            cold.add(frame);
    cold.finish();
    return plan;
}

std::vector<std::uint32_t> cold_order(const Plan& plan) {
    std::vector<std::uint32_t> order;
    for (const ChunkInfo& chunk : plan.chunks) {
        std::uint32_t page = 0; // runs of duplicates come last and start at an earlier page
        for (const ChunkRun& run : chunk.runs) {
            if (chunk.hot || run.page != page)
                break;
            for (std::uint32_t i = 0; i < run.count; ++i)
                order.push_back(run.first + i);
            page += run.count;
        }
    }
    return order;
}

std::vector<std::uint32_t> order_of_chunks(std::span<const std::byte> memory, std::uint64_t root,
                                           std::span<const std::uint32_t> hot, int memory_fd) {
    std::vector<std::uint32_t> order(hot.begin(), hot.end());
    const auto cold = cold_order(plan_chunks(memory, address_ranks(memory, root), hot, memory_fd));
    order.insert(order.end(), cold.begin(), cold.end());
    return order;
}

void gather_pages(const ChunkInfo& chunk, std::span<const std::byte> memory, tinykvm::IoBuffer& raw) {
    raw.resize(chunk.raw_bytes());
    for (const ChunkRun& run : chunk.runs)
        std::memcpy(raw.data() + std::size_t{run.page} * kPageSize, memory.data() + std::size_t{run.first} * kPageSize,
                    std::size_t{run.count} * kPageSize);
}

} // namespace kvmserver
