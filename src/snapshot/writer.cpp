#include "src/snapshot/writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "src/common/digest.hpp"
#include "src/snapshot/address_order.hpp"
#include "src/snapshot/codec.hpp"
#include "src/snapshot/compressed_chunk_cache.hpp"
#include "src/snapshot/format.hpp"
#include "src/snapshot/metadata.hpp"
#include "src/snapshot/output_file.hpp"
#include "src/snapshot/plan.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/guest_addr.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver {

namespace {

constexpr unsigned kMinThreads = 2, kMaxThreads = 8;

// Compresses chunks on several threads. The file gets them in order, so that its bytes depend only on the input.
class ChunkPress {
public:
    ChunkPress(std::vector<ChunkInfo>& chunks, std::span<const std::byte> memory, const Effort& effort,
               const FolderCache& cache, OutputFile& file)
        : chunks_(chunks), memory_(memory), effort_(effort), known_(cache, effort),
          known_hard_(cache, {0, effort.total_raw}), file_(file) {}

    // Returns the size of all chunks in the file.
    std::uint64_t run() {
        const unsigned wanted = std::clamp(std::thread::hardware_concurrency(), kMinThreads, kMaxThreads);
        std::vector<std::thread> threads;
        try {
            while (threads.size() < std::min<std::size_t>(wanted, chunks_.size()))
                threads.emplace_back([this] { work(); });
        } catch (const std::system_error&) {
            if (threads.empty())
                work();
        }
        for (std::thread& thread : threads)
            thread.join();
        if (failure_)
            std::rethrow_exception(failure_);
        return offset_ - format::kHeaderBytes;
    }

private:
    void work() {
        try {
            ChunkCompressor compressor(effort_);
            tinykvm::IoBuffer raw;
            for (std::size_t i; (i = take()) < chunks_.size();) {
                gather_pages(chunks_[i], memory_, raw);
                const bool hot = chunks_[i].hot;
                const Digest digest = sha256(raw);
                auto result = effort_.level == kQuickLevel ? known_hard_.find(digest, hot) : std::nullopt;
                if (!result)
                    result = known_.find(digest, hot);
                if (!result) {
                    result = compressor.compress(raw, hot);
                    known_.keep(digest, hot, *result);
                }
                deposit(i, std::move(*result), digest);
            }
        } catch (...) {
            const std::lock_guard lock(mutex_);
            if (!failure_)
                failure_ = std::current_exception();
        }
    }

    std::size_t take() {
        const std::lock_guard lock(mutex_);
        return failure_ ? chunks_.size() : next_++;
    }

    void deposit(std::size_t i, ChunkCompressor::Result result, const Digest& digest) {
        const std::lock_guard lock(mutex_);
        chunks_[i].sha256 = digest;
        done_.emplace(i, std::move(result));
        while (!done_.empty() && done_.begin()->first == written_) {
            const ChunkCompressor::Result& first = done_.begin()->second;
            ChunkInfo& chunk = chunks_[written_];
            chunk.filter = first.filter;
            chunk.stored = static_cast<std::uint32_t>(first.stored.size());
            chunk.checksum = format::checksum_of(first.stored);
            chunk.offset = offset_;
            file_.write_at(offset_, first.stored);
            offset_ += first.stored.size();
            done_.erase(done_.begin());
            ++written_;
        }
    }

    std::vector<ChunkInfo>& chunks_;
    std::span<const std::byte> memory_;
    const Effort effort_;
    const CompressedChunkCache known_, known_hard_; // by this effort, by the default one
    OutputFile& file_;

    std::mutex mutex_; // guards the members below, the file, and the fields of chunks that deposit() sets
    std::size_t next_ = 0, written_ = 0;
    std::uint64_t offset_ = format::kHeaderBytes;
    std::map<std::size_t, ChunkCompressor::Result> done_;
    std::exception_ptr failure_;
};

format::Section write_section(OutputFile& file, std::uint64_t& offset, std::span<const std::byte> raw) {
    const auto stored = compress_section(raw);
    file.write_at(offset, stored);
    offset += stored.size();
    return {stored.size(), raw.size(), format::checksum_of(stored)};
}

std::vector<std::byte> metadata_of(const std::filesystem::path& path, const tinykvm::MachineState& state) {
    try {
        return encode_metadata({this_version(), state});
    } catch (const FormatError& error) {
        throw tinykvm::UserError(tinykvm::ExitCode::failure,
                                 fmt::format("{}: {}", tinykvm::printable(path.native()), error.what()));
    }
}

} // namespace

SnapshotSummary write_snapshot(const std::filesystem::path& path, const tinykvm::MachineState& state,
                               std::span<const std::byte> memory, std::span<const std::uint32_t> hot_frames, int level,
                               int memory_fd, const FolderCache& cache, Purpose purpose) {
    if (memory.size() != std::uint64_t{state.frames} * tinykvm::kPageSize)
        throw std::logic_error("write_snapshot: the memory is not that of the state");
    if ((level < 0 || level > 22) && level != kQuickLevel)
        throw tinykvm::UserError(tinykvm::ExitCode::usage,
                                 fmt::format("compression level {}: must be 1 to 22, or 0 for the default", level));
    const auto metadata = metadata_of(path, state);
    OutputFile file(path); // fail before the slow part
    std::vector<tinykvm::FrameRun> apart;
    for (const tinykvm::LargePageState& page : state.large_pages)
        apart.push_back(page.hot);
    Plan plan = plan_chunks(memory, address_ranks(memory, state.page_table_root), hot_frames, memory_fd, apart);
    const Effort effort{level, std::uint64_t{plan.stored_pages} * tinykvm::kPageSize};

    format::Header header;
    header.prefix.guest_abi = state.guest_abi;
    header.chunks = static_cast<std::uint32_t>(plan.chunks.size());
    header.chunk_bytes = ChunkPress(plan.chunks, memory, effort, cache, file).run();
    std::uint64_t end = header.metadata_at();
    header.metadata = write_section(file, end, metadata);
    const auto index = encode_index(plan.chunks);
    if (index.size() > format::kMaxIndexBytes)
        throw tinykvm::UserError(tinykvm::ExitCode::failure,
                                 fmt::format("{}: guest memory is too scattered", tinykvm::printable(path.native())));
    header.index = write_section(file, end, index);
    header.prefix.file_bytes = end;
    file.write_at(0, format::encode(header));

    SnapshotSummary summary;
    summary.file_bytes = end;
    if (purpose == Purpose::keep)
        summary.sha256 = sha256_of_file(file.fd(), "the snapshot back").hex();
    summary.stored_pages = plan.stored_pages;
    summary.zero_pages = plan.zero_pages;
    summary.copied_pages = plan.copied_pages;
    summary.chunks = header.chunks;
    summary.hot_chunks = static_cast<std::uint32_t>(
        std::count_if(plan.chunks.begin(), plan.chunks.end(), [](auto& c) { return c.hot; }));
    file.publish(purpose == Purpose::keep ? OutputFile::Durable::yes : OutputFile::Durable::no);
    return summary;
}

} // namespace kvmserver
