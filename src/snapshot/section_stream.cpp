#include "src/snapshot/section_stream.hpp"
#include "tinykvm/base/io_buffer.hpp"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <new>

namespace kvmserver {
namespace {
constexpr std::size_t kBlock = 64 << 10;
} // namespace

void SectionStream::Free::operator()(ZSTD_DCtx_s* context) const { ZSTD_freeDCtx(context); }

SectionStream::SectionStream(const ByteSource& source, const format::Section& section, std::uint64_t offset,
                             const char* name)
    : source_(source), section_(section), name_(name), context_(ZSTD_createDCtx()), in_(kBlock), read_at_(offset),
      read_end_(offset + section.stored) {
    if (!context_ || ZSTD_isError(ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, kWindowLog)))
        throw std::bad_alloc();
    if (checksum_of(source, offset, section.stored) != section.checksum)
        throw FormatError(fmt::format("altered: the {} does not match its checksum", name));
}

void SectionStream::wrong_length() const {
    throw FormatError(fmt::format("{} is inconsistent: it does not decompress to its length", name_));
}

// Returns 0 at the end of the stored bytes.
std::size_t SectionStream::inflate(std::span<std::byte> bytes) {
    ZSTD_outBuffer out{bytes.data(), bytes.size(), 0};
    while (out.pos == 0) {
        if (in_at_ == in_end_) {
            in_end_ = std::min<std::uint64_t>(in_.size(), read_end_ - read_at_);
            in_at_ = 0;
            source_.read_at(read_at_, std::span(in_).first(in_end_));
            read_at_ += in_end_;
            if (in_end_ == 0 && complete_)
                return 0;
        }
        ZSTD_inBuffer in{in_.data(), in_end_, in_at_};
        const std::size_t hint = ZSTD_decompressStream(context_.get(), &out, &in);
        if (ZSTD_isError(hint))
            throw FormatError(
                fmt::format("{} is inconsistent: it does not decompress: {}", name_, ZSTD_getErrorName(hint)));
        const bool stands_still = in.pos == in_at_ && out.pos == 0;
        in_at_ = in.pos;
        complete_ = hint == 0;
        if (stands_still && in_at_ == in_end_ && read_at_ == read_end_)
            return 0;
    }
    return out.pos;
}

std::size_t SectionStream::some(std::span<std::byte> bytes) {
    const auto wanted = bytes.first(static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), left())));
    if (wanted.empty())
        return 0;
    const std::size_t count = inflate(wanted);
    if (count == 0)
        wrong_length();
    taken_ += count;
    return count;
}

void SectionStream::fill(std::span<std::byte> bytes) {
    if (bytes.size() > left())
        throw FormatError(fmt::format("{} is inconsistent: it ends too early", name_));
    while (!bytes.empty())
        bytes = bytes.subspan(some(bytes));
}

void SectionStream::expect_end() {
    if (left() != 0)
        throw FormatError(fmt::format("{} is inconsistent: it is too long", name_));
    std::byte more[1];
    if (inflate(more) != 0 || !complete_)
        wrong_length();
}

format::Checksum checksum_of(const ByteSource& source, std::uint64_t offset, std::uint64_t bytes) {
    tinykvm::IoBuffer block(static_cast<std::size_t>(std::min<std::uint64_t>(kBlock, bytes)));
    format::RunningChecksum sum;
    while (bytes > 0) {
        const auto count = std::min<std::uint64_t>(block.size(), bytes);
        const auto part = std::span(block).first(static_cast<std::size_t>(count));
        source.read_at(offset, part);
        sum.add(part);
        offset += part.size();
        bytes -= part.size();
    }
    return sum.finish();
}

} // namespace kvmserver
