#include "src/snapshot/reader.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <stdexcept>

#include "src/snapshot/codec.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/guest_addr.hpp"
#include "tinykvm/base/io_buffer.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver {

using tinykvm::ExitCode;
using tinykvm::UserError;

namespace {

using tinykvm::kPageSize;

// Reused by each thread, because there are many small chunks.
enum Buffer : std::uint8_t { stored, raw, unfiltered };
thread_local std::array<tinykvm::IoBuffer, 3> unpack_buffers;

std::span<std::byte> buffer_for(Buffer which, std::size_t bytes) {
    tinykvm::IoBuffer& buffer = unpack_buffers[which];
    if (buffer.size() < bytes)
        buffer = tinykvm::IoBuffer(bytes);
    return std::span(buffer).first(bytes);
}

} // namespace

void SnapshotReader::bad(const std::string& why) const {
    throw UserError(ExitCode::bad_snapshot, fmt::format("{}: {}", tinykvm::printable(path_.native()), why));
}

SnapshotReader SnapshotReader::open(const std::filesystem::path& path) { return open(open_file_source(path), path); }

SnapshotReader SnapshotReader::open(std::unique_ptr<ByteSource> source, const std::filesystem::path& name) {
    SnapshotReader reader;
    reader.path_ = name;
    reader.source_ = std::move(source);
    try {
        std::array<std::byte, format::kHeaderBytes> bytes;
        const std::uint64_t size = reader.source_->size();
        const auto header = std::span(bytes).first(std::min<std::uint64_t>(size, bytes.size()));
        reader.source_->read_at(0, header);
        reader.header_ = format::decode_header(header, size);
        reader.parse();
    } catch (const FormatError& error) {
        reader.bad(error.what());
    } catch (const std::bad_alloc&) {
        reader.bad("needs more memory than there is");
    }
    return reader;
}

void SnapshotReader::parse() {
    const auto metadata = read_section(header_.metadata, header_.metadata_at(), "metadata");
    metadata_ = decode_metadata(metadata);
    if (metadata_.machine.guest_abi != header_.prefix.guest_abi)
        throw FormatError("header is inconsistent: the metadata has another guest kernel ABI");
    const auto index = read_section(header_.index, header_.index_at(), "index");
    chunks_ = decode_index(index, header_, metadata_.machine.frames);
    frames_ = FrameMap(chunks_);
}

std::vector<std::byte> SnapshotReader::read_section(const format::Section& section, std::uint64_t offset,
                                                    const char* name) const {
    std::vector<std::byte> stored(section.stored);
    source_->read_at(offset, stored);
    if (format::checksum_of(stored) != section.checksum)
        throw FormatError(fmt::format("altered: the {} does not match its checksum", name));
    std::vector<std::byte> raw(section.raw);
    if (!decompress(stored, raw))
        throw FormatError(fmt::format("{} is inconsistent: it does not decompress to its length", name));
    return raw;
}

void SnapshotReader::decompress_chunk(std::size_t number, std::span<std::byte> raw) const {
    const ChunkInfo& chunk = chunks_[number];
    const auto stored = buffer_for(Buffer::stored, chunk.stored);
    source_->read_at(chunk.offset, stored);
    if (format::checksum_of(stored) != chunk.checksum)
        throw FormatError(fmt::format("altered: chunk {} of guest memory does not match its checksum", number));
    if (!decompress(stored, raw))
        throw FormatError(fmt::format("chunk {} of guest memory does not decompress to its length", number));
}

void SnapshotReader::drop_buffers() {
    unpack_buffers = {};
    drop_decompressor();
}

std::span<const std::byte> SnapshotReader::unpack(std::size_t number) const {
    const ChunkInfo& chunk = chunks_[number];
    try {
        const auto raw = buffer_for(Buffer::raw, chunk.raw_bytes());
        decompress_chunk(number, raw);
        if (chunk.filter == Filter::none)
            return raw;
        const auto unfiltered = buffer_for(Buffer::unfiltered, raw.size());
        undo_filter(chunk.filter, raw, unfiltered.data());
        return unfiltered;
    } catch (const FormatError& error) {
        bad(error.what());
    }
}

void SnapshotReader::place(std::size_t number, std::span<const std::byte> pages, std::span<std::byte> image) const {
    const ChunkInfo& chunk = chunks_[number];
    if (image.size() != std::uint64_t{metadata_.machine.frames} * kPageSize || pages.size() != chunk.raw_bytes())
        throw std::logic_error("SnapshotReader::place: the image or the chunk has another size");
    for (const ChunkRun& run : chunk.runs)
        std::memcpy(image.data() + std::size_t{run.first} * kPageSize, pages.data() + std::size_t{run.page} * kPageSize,
                    std::size_t{run.count} * kPageSize);
}

std::optional<CopyName> SnapshotReader::copy_name(std::size_t number) const {
    const ChunkInfo& chunk = chunks_[number];
    return chunk.sha256 ? std::optional(CopyName{*chunk.sha256, chunk.raw_bytes()}) : std::nullopt;
}

void SnapshotReader::check_stored(std::size_t number) const {
    const ChunkInfo& chunk = chunks_[number];
    try {
        const auto stored = buffer_for(Buffer::stored, chunk.stored);
        source_->read_at(chunk.offset, stored);
        if (format::checksum_of(stored) != chunk.checksum)
            throw FormatError(fmt::format("altered: chunk {} of guest memory does not match its checksum", number));
    } catch (const FormatError& error) {
        bad(error.what());
    }
}

void SnapshotReader::verify() const {
    for (std::size_t i = 0; i < chunks_.size(); ++i)
        verify(i);
}

void SnapshotReader::verify(std::size_t number) const {
    const auto pages = unpack(number);
    if (chunks_[number].sha256 && sha256(pages) != *chunks_[number].sha256)
        bad(fmt::format("altered: the pages of chunk {} do not match their SHA-256", number));
}

void require_guest_abi(const SnapshotReader& reader, std::uint32_t abi) {
    const std::uint32_t made_for = reader.state().guest_abi;
    if (made_for != abi)
        throw UserError(
            ExitCode::bad_snapshot,
            fmt::format("{}: made for guest kernel ABI {}, and this kvmserver has {}; make the snapshot again",
                        tinykvm::printable(reader.path().native()), made_for, abi));
}

} // namespace kvmserver
