#include "src/snapshot/recompress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "src/snapshot/codec.hpp"
#include "src/snapshot/facts.hpp"
#include "src/snapshot/format.hpp"
#include "src/snapshot/index.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver {

namespace {

std::vector<std::byte> read(const ByteSource& source, std::uint64_t offset, std::uint64_t bytes) {
    std::vector<std::byte> read(bytes);
    source.read_at(offset, read);
    return read;
}

format::Header read_header(const ByteSource& source) {
    return format::decode_header(read(source, 0, std::min<std::uint64_t>(source.size(), format::kHeaderBytes)),
                                 source.size());
}

class Press {
public:
    Press(const ByteSource& source, int out, const format::Header& header, std::vector<ChunkInfo> chunks)
        : source_(source), out_(out), header_(header), chunks_(std::move(chunks)), hard_effort_{0, raw_bytes()},
          quick_({kQuickLevel, raw_bytes()}), hard_(hard_effort_) {}

    std::optional<Pressed> run() {
        for (std::size_t i = 0; i < chunks_.size(); ++i)
            press(i);
        if (pressed_.chunks.empty())
            return std::nullopt;
        finish();
        return std::move(pressed_);
    }

private:
    std::uint64_t raw_bytes() const {
        std::uint64_t sum = 0;
        for (const ChunkInfo& chunk : chunks_)
            sum += chunk.raw_bytes();
        return sum;
    }

    // The pages of a chunk, and in stored_ what the file holds of it.
    std::span<const std::byte> unpack(std::size_t number) {
        const ChunkInfo& chunk = chunks_[number];
        stored_ = read(source_, chunk.offset, chunk.stored);
        if (format::checksum_of(stored_) != chunk.checksum)
            throw FormatError(fmt::format("altered: chunk {} of guest memory does not match its checksum", number));
        raw_.resize(chunk.raw_bytes());
        if (!decompress(stored_, raw_))
            throw FormatError(fmt::format("chunk {} of guest memory does not decompress to its length", number));
        if (chunk.filter == Filter::none)
            return raw_;
        unfiltered_.resize(raw_.size());
        undo_filter(chunk.filter, raw_, unfiltered_.data());
        return unfiltered_;
    }

    void press(std::size_t number) {
        ChunkInfo& chunk = chunks_[number];
        const auto pages = unpack(number);
        const Digest digest = sha256(pages);
        if (chunk.sha256 && digest != *chunk.sha256)
            throw FormatError(fmt::format("altered: the pages of chunk {} do not match their SHA-256", number));
        // What a hurry gives is recognised by its bytes: the same pages give the same.
        const bool in_a_hurry = !is_fast(hard_effort_, chunk.hot) && chunk.filter == Filter::none &&
                                std::ranges::equal(quick_.compress(pages, chunk.hot).stored, stored_);
        if (in_a_hurry) {
            ChunkCompressor::Result result = hard_.compress(pages, chunk.hot);
            stored_ = std::move(result.stored);
            chunk.filter = result.filter;
            chunk.stored = static_cast<std::uint32_t>(stored_.size());
            chunk.checksum = format::checksum_of(stored_);
            pressed_.chunks.push_back({digest, offset_, chunk.stored, chunk.hot, chunk.filter});
        }
        chunk.offset = offset_;
        write_at(offset_, stored_);
        offset_ += stored_.size();
    }

    void finish() {
        const std::uint64_t metadata_was_at = header_.metadata_at();
        header_.chunk_bytes = offset_ - format::kHeaderBytes;
        for (std::uint64_t at = 0; at < header_.metadata.stored;) {
            const auto part =
                read(source_, metadata_was_at + at, std::min<std::uint64_t>(header_.metadata.stored - at, kPartBytes));
            write_at(header_.metadata_at() + at, part);
            at += part.size();
        }
        const auto index = encode_index(chunks_);
        const auto stored = compress_section(index);
        header_.index = {stored.size(), index.size(), format::checksum_of(stored)};
        write_at(header_.index_at(), stored);
        header_.prefix.file_bytes = header_.index_at() + stored.size();
        write_at(0, format::encode(header_));
        pressed_.file_bytes = header_.prefix.file_bytes;
        pressed_.total_raw = raw_bytes();
    }

    void write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
        while (!bytes.empty()) {
            const ssize_t n = ::pwrite(out_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
            if (n < 0 && errno == EINTR)
                continue;
            if (n == 0)
                errno = ENOSPC;
            if (n <= 0)
                tinykvm::throw_errno("write a snapshot anew");
            offset += static_cast<std::uint64_t>(n);
            bytes = bytes.subspan(static_cast<std::size_t>(n));
        }
    }

    static constexpr std::uint64_t kPartBytes = 1 << 20;

    const ByteSource& source_;
    const int out_;
    format::Header header_;
    std::vector<ChunkInfo> chunks_;
    const Effort hard_effort_;
    ChunkCompressor quick_, hard_;
    std::uint64_t offset_ = format::kHeaderBytes;
    std::vector<std::byte> stored_, raw_, unfiltered_; // of the chunk under way
    Pressed pressed_;
};

} // namespace

std::optional<Pressed> recompress(const ByteSource& source, int out) {
    const SnapshotFacts facts = examine_snapshot(source);
    const format::Header header = read_header(source);
    std::vector<std::byte> index(header.index.raw);
    if (!decompress(read(source, header.index_at(), header.index.stored), index))
        throw FormatError("index is inconsistent: it does not decompress to its length");
    return Press(source, out, header, decode_index(index, header, facts.frames)).run();
}

} // namespace kvmserver
