#include "src/snapshot/image_loader.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <system_error>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/guest_addr.hpp"
#include "tinykvm/base/mapping.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver {
namespace {

// Shorter runs are copied: each mapped run costs a mapping.
constexpr std::uint32_t kWorthMapping = 64;

// The least number of pages. A mapping and its open file take less than a tenth of their memory in each process.
constexpr std::uint32_t kWorthSharing = 3;

// The parts of runs, of kWorthSharing pages or more, whose frames hold the pages of a copy and need not stay as they
// are.
std::vector<ChunkRun> equal_runs(std::span<const ChunkRun> runs, std::span<const std::byte> copy,
                                 std::span<const std::byte> image, const std::vector<bool>& stays) {
    using tinykvm::kPageSize;
    std::vector<ChunkRun> equal;
    for (const ChunkRun& run : runs) {
        const auto is_equal = [&](std::uint32_t i) {
            const std::size_t frame = run.first + i, page = run.page + i;
            return !stays[frame] &&
                   std::memcmp(copy.data() + page * kPageSize, image.data() + frame * kPageSize, kPageSize) == 0;
        };
        for (std::uint32_t begin = 0, end; begin < run.count; begin = end + 1) {
            for (end = begin; end < run.count && is_equal(end);)
                ++end;
            if (end - begin >= kWorthSharing)
                equal.push_back({run.first + begin, end - begin, run.page + begin});
        }
    }
    return equal;
}

std::vector<CopyName> hot_copies(const SnapshotReader& reader) {
    std::vector<CopyName> names;
    for (std::size_t i = 0; i < reader.chunks().size() && reader.chunks()[i].hot; ++i)
        names.push_back(*reader.copy_name(i));
    return names;
}

} // namespace

bool worth_copies(const SnapshotReader& reader) {
    std::uint64_t bytes = 0;
    for (const ChunkInfo& chunk : reader.chunks())
        bytes += chunk.raw_bytes();
    return bytes >= PageCache::kWorthBytes && reader.copy_name(0);
}

SnapshotLoader::SnapshotLoader(SnapshotReader reader, std::shared_ptr<const PageCache> cache, tinykvm::Image& image)
    : reader_(std::move(reader)), cache_(std::move(cache)), caches_(worth_copies(reader_) && cache_->usable()),
      image_(image), states_(reader_.chunks().size()) {
    while (hot_ < reader_.chunks().size() && reader_.chunks()[hot_].hot)
        ++hot_;
}

tinykvm::UniqueFd SnapshotLoader::copy_of(std::size_t chunk) {
    if (!caches_)
        return {};
    if (chunk >= hot_)
        return cache_->find(*reader_.copy_name(chunk));
    std::call_once(asked_, [this] { hot_copies_ = cache_->find_all(hot_copies(reader_)); });
    return std::move(hot_copies_[chunk]);
}

std::size_t SnapshotLoader::hot_chunks_without(std::span<const tinykvm::FrameRun> frames) const {
    std::vector<bool> needless(reader_.state().frames);
    for (const tinykvm::FrameRun& run : frames)
        std::fill_n(needless.begin() + run.first, run.count, true);
    const auto needed = [&](const ChunkInfo& chunk) {
        return std::ranges::any_of(chunk.runs, [&](const ChunkRun& run) {
            const auto begin = needless.begin() + run.first;
            return std::find(begin, begin + run.count, false) != begin + run.count;
        });
    };
    std::size_t chunks = hot_;
    while (chunks > 0 && !needed(reader_.chunks()[chunks - 1]))
        --chunks;
    return chunks;
}

std::uint32_t SnapshotLoader::end_of(std::size_t chunks) const {
    std::uint32_t end = 0;
    for (const ChunkInfo& chunk : reader_.chunks().first(chunks))
        for (const ChunkRun& run : chunk.runs)
            end = std::max(end, run.first + run.count);
    return end;
}

tinykvm::FramePresence SnapshotLoader::presence(std::uint32_t frame) const {
    using tinykvm::FramePresence;
    const auto chunk = reader_.chunk_of(frame);
    if (!chunk)
        return FramePresence::hole;
    return left_out(frame) || states_[*chunk].load(std::memory_order_acquire) == present ? FramePresence::loaded
                                                                                         : FramePresence::absent;
}

void SnapshotLoader::leave_out(std::uint32_t first, std::uint32_t count) {
    if (left_out_.size() < first + std::size_t{count})
        left_out_.resize(std::max<std::size_t>(image_.frames(), first + std::size_t{count}));
    std::fill_n(left_out_.begin() + first, count, true);
}

std::vector<ChunkRun> SnapshotLoader::runs_of(const ChunkInfo& chunk) const {
    if (left_out_.empty())
        return chunk.runs;
    std::vector<ChunkRun> runs;
    for (const ChunkRun& run : chunk.runs)
        for (std::uint32_t i = 0; i < run.count; ++i) {
            if (left_out(run.first + i))
                continue;
            if (runs.empty() || runs.back().first + runs.back().count != run.first + i ||
                runs.back().page + runs.back().count != run.page + i)
                runs.push_back({.first = run.first + i, .count = 0, .page = run.page + i});
            ++runs.back().count;
        }
    return runs;
}

void SnapshotLoader::load(std::uint32_t frame) {
    if (const auto chunk = reader_.chunk_of(frame); chunk && !left_out(frame))
        load_chunk(*chunk);
}

void SnapshotLoader::load_chunk(std::size_t chunk) {
    std::uint8_t seen = absent;
    if (states_[chunk].compare_exchange_strong(seen, loading, std::memory_order_acquire)) {
        try {
            fill(chunk);
        } catch (...) {
            states_[chunk].store(failed, std::memory_order_release);
            const std::lock_guard lock(mutex_);
            arrived_.notify_all();
            throw;
        }
        states_[chunk].store(present, std::memory_order_release);
        const std::lock_guard lock(mutex_);
        arrived_.notify_all();
        return;
    }
    if (seen == loading) {
        std::unique_lock lock(mutex_);
        arrived_.wait(lock, [&] { return states_[chunk].load(std::memory_order_acquire) != loading; });
        seen = states_[chunk].load(std::memory_order_acquire);
    }
    if (seen == failed)
        throw tinykvm::UserError(tinykvm::ExitCode::bad_snapshot,
                                 fmt::format("{}: a part of the snapshot cannot be read; build it again",
                                             tinykvm::printable(reader_.path().native())));
}

void SnapshotLoader::fill(std::size_t number) {
    const ChunkInfo& chunk = reader_.chunks()[number];
    tinykvm::UniqueFd copy = copy_of(number);
    if (copy && chunk.hot)
        ++hot_from_cache_;
    const std::vector<ChunkRun> runs = runs_of(chunk);
    if (runs.empty())
        return;
    const auto longest = std::ranges::max_element(runs, {}, &ChunkRun::count);
    bool map = maps_ && longest->count >= kWorthMapping;
    std::span<const std::byte> pages; // empty until unpacked
    if (!copy) {
        pages = reader_.unpack(number);
        if (map)
            copy = cache_->keep(*reader_.copy_name(number), pages);
    }
    map = map && copy;
    const auto put = [&](const ChunkRun& run) {
        const std::uint64_t at = std::uint64_t{run.page} * tinykvm::kPageSize;
        if (pages.empty() && image_.fill(run.first, run.count, copy.get(), at))
            return;
        if (pages.empty())
            pages = reader_.unpack(number);
        image_.fill(run.first, pages.subspan(at, std::size_t{run.count} * tinykvm::kPageSize));
    };
    for (const ChunkRun& run : runs)
        if (!map || &run != &*longest)
            put(run);
    if (!map)
        return;
    try {
        image_.add_part(
            {std::move(copy), std::uint64_t{longest->page} * tinykvm::kPageSize, longest->first, longest->count});
    } catch (const std::system_error&) {
        // Out of mappings. add_part() has closed the file, so copy the pages instead.
        if (pages.empty())
            pages = reader_.unpack(number);
        put(*longest);
    }
}

void SnapshotLoader::share_hot(std::size_t chunks, std::span<const tinykvm::FrameRun> own) {
    using tinykvm::kPageSize;
    if (hot_ == 0 || !cache_->usable() || !reader_.copy_name(0))
        return;
    shared_.resize(hot_);
    std::vector<std::size_t> numbers;
    std::vector<CopyName> names;
    for (std::size_t number = 0; number < chunks; ++number)
        if (!shared_[number]) {
            numbers.push_back(number);
            names.push_back(*reader_.copy_name(number));
        }
    if (names.empty())
        return;
    std::vector<bool> stays(image_.frames());
    for (const tinykvm::FrameRun& run : own)
        std::fill_n(stays.begin() + run.first, run.count, true);
    auto copies = cache_->find_all(names);
    for (std::size_t i = 0; i < copies.size(); ++i) {
        if (!copies[i] && !caches_) // a snapshot so small that a start needs none
            copies[i] = cache_->keep(names[i], reader_.unpack(numbers[i]));
        if (!copies[i])
            continue;
        const ChunkInfo& chunk = reader_.chunks()[numbers[i]];
        const auto copy =
            tinykvm::Mapping::map(chunk.raw_bytes(), PROT_READ, MAP_SHARED, copies[i].get(), 0, "a chunk's copy");
        const auto runs = equal_runs(runs_of(chunk), copy.bytes(), image_.bytes(), stays);
        std::size_t done = 0;
        for (const ChunkRun& run : runs) {
            tinykvm::UniqueFd file(::fcntl(copies[i].get(), F_DUPFD_CLOEXEC, 0));
            if (!file || !image_.exchange({std::move(file), std::uint64_t{run.page} * kPageSize, run.first, run.count}))
                break;
            ++done;
        }
        shared_[numbers[i]] = done != 0 || runs.empty();
    }
}

std::vector<std::size_t> hot_without_copies(const SnapshotReader& reader, const PageCache& cache) {
    std::vector<std::size_t> without;
    const auto found = cache.find_all(hot_copies(reader));
    for (std::size_t i = 0; i < found.size(); ++i)
        if (!found[i])
            without.push_back(i);
    return without;
}

void offer_chunks(const SnapshotReader& reader, const PageCache& cache, std::span<const std::size_t> chunks,
                  const std::function<bool()>& may_continue) {
    for (const std::size_t chunk : chunks) {
        if (!may_continue())
            return;
        cache.offer(*reader.copy_name(chunk), reader.unpack(chunk));
    }
}

void SnapshotLoader::load_chunks(std::size_t first, std::size_t last, const std::atomic<bool>& stop) {
    for (std::size_t chunk = first; chunk < last && !stop.load(std::memory_order_relaxed); ++chunk)
        load_chunk(chunk);
}

} // namespace kvmserver
