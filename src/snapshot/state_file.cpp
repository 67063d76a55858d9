#include "src/snapshot/state_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "src/snapshot/bytes.hpp"
#include "src/snapshot/metadata.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/guest_addr.hpp"
#include "tinykvm/base/io_buffer.hpp"
#include "tinykvm/base/read.hpp"
#include "tinykvm/base/write.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

constexpr std::array<std::uint8_t, 8> kStateMagic{0x89, 'K', 'V', 'M', 's', '\n', 0x1a, 1}; // the last one: version
constexpr std::size_t kStateHeaderBytes = 8 + 8 + 4 + 4 + 32 + 16 + 16 + 16;
constexpr std::size_t kPagesAtOnce = 256;
constexpr std::size_t kBeginWriting = 1024; // pages, after which the disk is told to begin

struct StateHeader {
    std::uint64_t metadata_bytes = 0;
    std::uint32_t frames = 0; // of all memory
    std::uint32_t count = 0;  // of those in the file
    Digest base;
    format::Checksum body, pages;

    std::vector<std::byte> bytes() const {
        ByteWriter out;
        out.put(std::as_bytes(std::span(kStateMagic)));
        out.put(metadata_bytes);
        out.put(frames);
        out.put(count);
        out.put(std::as_bytes(std::span(base.bytes)));
        out.put(std::as_bytes(std::span(body.bytes)));
        out.put(std::as_bytes(std::span(pages.bytes)));
        const format::Checksum own = format::checksum_of(out.bytes());
        out.put(std::as_bytes(std::span(own.bytes)));
        return std::move(out).take();
    }
};

template <std::size_t n>
void take(ByteReader& from, std::array<std::uint8_t, n>& to) {
    std::memcpy(to.data(), from.take(n).data(), n);
}

} // namespace

std::uint64_t write_state(int file, const Digest& base, const MachineState& state, std::span<const std::byte> memory,
                          std::span<const std::uint32_t> frames, const std::string& what) {
    const std::vector<std::byte> metadata = encode_metadata({this_version(), state});
    std::vector<std::byte> body = metadata;
    const auto numbers = std::as_bytes(frames);
    body.insert(body.end(), numbers.begin(), numbers.end());
    StateHeader header{.metadata_bytes = metadata.size(),
                       .frames = state.frames,
                       .count = static_cast<std::uint32_t>(frames.size()),
                       .base = base,
                       .body = format::checksum_of(body),
                       .pages = {}};
    const std::vector<std::byte> empty(kStateHeaderBytes);
    write_all(file, empty, what);
    write_all(file, body, what);
    format::RunningChecksum sum;
    std::vector<std::byte> pages;
    for (std::size_t at = 0; at < frames.size(); at += kPagesAtOnce) {
        pages.clear();
        for (const std::uint32_t frame : frames.subspan(at, std::min(kPagesAtOnce, frames.size() - at))) {
            const auto page = memory.subspan(std::uint64_t{frame} * kPageSize, kPageSize);
            pages.insert(pages.end(), page.begin(), page.end());
        }
        sum.add(pages);
        write_all(file, pages, what);
        if (at % kBeginWriting == 0) // the disk is at work meanwhile, and the fsync below takes less long
            ::sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WRITE);
    }
    header.pages = sum.finish();
    // The header comes last: a file without one is of a write that did not end.
    const std::vector<std::byte> bytes = header.bytes();
    if (::pwrite(file, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()) || ::fsync(file) < 0)
        throw_errno(what);
    return bytes.size() + body.size() + std::uint64_t{frames.size()} * kPageSize;
}

void StateFile::bad(const std::string& why) const { throw UserError(ExitCode::bad_snapshot, what_ + ": " + why); }

StateFile::StateFile(int file, const Digest& base, std::string what) : file_(file), what_(std::move(what)) {
    std::vector<std::byte> bytes(kStateHeaderBytes);
    if (read_at(file_, 0, bytes, what_) != bytes.size())
        bad("it is cut off");
    ByteReader in(bytes, "its header");
    std::array<std::uint8_t, 8> magic{};
    StateHeader header;
    take(in, magic);
    header.metadata_bytes = in.get<std::uint64_t>();
    header.frames = in.get<std::uint32_t>();
    header.count = in.get<std::uint32_t>();
    take(in, header.base.bytes);
    take(in, header.body.bytes);
    take(in, header.pages.bytes);
    if (magic != kStateMagic)
        bad("it is no saved state, or of another kvmserver");
    if (header.bytes() != bytes || header.metadata_bytes > format::kMaxMetadataBytes ||
        header.frames > format::kMaxFrames || header.count > header.frames)
        bad("its header is damaged");
    if (header.base != base)
        bad("it is of a machine of another snapshot");
    std::vector<std::byte> body(header.metadata_bytes + std::uint64_t{header.count} * sizeof(std::uint32_t));
    if (read_at(file_, kStateHeaderBytes, body, what_) != body.size() || format::checksum_of(body) != header.body)
        bad("it is damaged");
    try {
        machine_ = decode_metadata(std::span(body).first(header.metadata_bytes)).machine;
    } catch (const FormatError& error) {
        bad(error.what());
    }
    frames_.resize(header.count);
    std::memcpy(frames_.data(), body.data() + header.metadata_bytes, body.size() - header.metadata_bytes);
    if (machine_.frames != header.frames || !std::ranges::is_sorted(frames_, std::less_equal<>()) ||
        (!frames_.empty() && frames_.back() >= header.frames))
        bad("its frames are no frames of its memory");
    pages_at_ = kStateHeaderBytes + body.size();
    pages_sum_ = header.pages;
}

void StateFile::read_pages(const std::function<void(std::uint32_t, std::span<const std::byte>)>& fn) const {
    format::RunningChecksum sum;
    IoBuffer buffer(std::min(kPagesAtOnce, frames_.size()) * kPageSize);
    std::uint64_t at = pages_at_;
    for (std::size_t done = 0; done < frames_.size();) {
        std::size_t run = 1;
        while (run < kPagesAtOnce && done + run < frames_.size() && frames_[done + run] == frames_[done] + run)
            ++run;
        const auto pages = std::span(buffer).first(run * kPageSize);
        if (read_at(file_, at, pages, what_) != pages.size())
            bad("it is cut off");
        sum.add(pages);
        fn(frames_[done], pages);
        at += pages.size();
        done += run;
    }
    if (sum.finish() != pages_sum_)
        bad("its pages are damaged");
}

} // namespace kvmserver
