#include "src/snapshot/state_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
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

constexpr std::array<std::uint8_t, 8> kStateMagic{0x89, 'K', 'V', 'M', 's', '\n', 0x1a, 2}; // the last one: version
constexpr std::size_t kStateHeaderBytes = 8 + 8 + 4 + 4 + 32 + 16 + 16 + 16 + 16;
constexpr std::size_t kPagesAtOnce = 256;
constexpr std::size_t kBeginWriting = 1024; // pages, after which the disk is told to begin
static_assert(kMostStateParts < 255);       // see StateFile::last_

struct StateHeader {
    std::uint64_t metadata_bytes = 0;
    std::uint32_t frames = 0; // of all memory
    std::uint32_t count = 0;  // of those in the part
    Digest base;
    format::Checksum before, body, pages;

    std::vector<std::byte> bytes() const {
        ByteWriter out;
        out.put(std::as_bytes(std::span(kStateMagic)));
        out.put(metadata_bytes);
        out.put(frames);
        out.put(count);
        out.put(std::as_bytes(std::span(base.bytes)));
        out.put(std::as_bytes(std::span(before.bytes)));
        out.put(std::as_bytes(std::span(body.bytes)));
        out.put(std::as_bytes(std::span(pages.bytes)));
        const format::Checksum own = format::checksum_of(out.bytes());
        out.put(std::as_bytes(std::span(own.bytes)));
        return std::move(out).take();
    }
    std::uint64_t numbers_bytes() const { return std::uint64_t{count} * sizeof(std::uint32_t); }
    std::uint64_t before_pages() const { return page_up(kStateHeaderBytes + metadata_bytes + numbers_bytes()); }
    std::uint64_t body_bytes() const { return before_pages() - kStateHeaderBytes; }
    std::uint64_t part_bytes() const { return before_pages() + std::uint64_t{count} * kPageSize; }
};

template <std::size_t n>
void take(ByteReader& from, std::array<std::uint8_t, n>& to) {
    std::memcpy(to.data(), from.take(n).data(), n);
}

} // namespace

WrittenState write_state(int file, const WrittenState& before, const Digest& base, const MachineState& state,
                         std::span<const std::byte> memory, std::span<const std::uint32_t> frames,
                         const std::string& what) {
    std::vector<std::byte> body = encode_metadata({this_version(), state});
    StateHeader header{.metadata_bytes = body.size(),
                       .frames = state.frames,
                       .count = static_cast<std::uint32_t>(frames.size()),
                       .base = base,
                       .before = before.header,
                       .body = {},
                       .pages = {}};
    const auto numbers = std::as_bytes(frames);
    body.insert(body.end(), numbers.begin(), numbers.end());
    body.resize(header.body_bytes());
    header.body = format::checksum_of(body);
    const std::vector<std::byte> empty(kStateHeaderBytes);
    if (::lseek(file, static_cast<off_t>(before.bytes), SEEK_SET) < 0)
        throw_errno("write " + what);
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
    // The header comes last: a part without one is of a write that did not end.
    const std::vector<std::byte> bytes = header.bytes();
    if (::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(before.bytes)) !=
            static_cast<ssize_t>(bytes.size()) ||
        ::fsync(file) < 0)
        throw_errno(what);
    return {before.bytes + header.part_bytes(), before.parts + 1, format::checksum_of(bytes)};
}

void StateFile::bad(const std::string& why) const { throw UserError(ExitCode::bad_snapshot, what_ + ": " + why); }

StateFile::StateFile(int file, std::uint64_t size, const Digest& base, std::string what)
    : file_(file), what_(std::move(what)) {
    struct stat info {};
    if (::fstat(file_, &info) < 0)
        throw_errno(what_);
    size = std::min(size, static_cast<std::uint64_t>(info.st_size));
    do {
        parts_.push_back(
            read_part(parts_.empty() ? 0 : parts_.back().end, base, parts_.empty() ? nullptr : &parts_.back()));
        if (parts_.size() > kMostStateParts || parts_.back().end > size)
            bad(parts_.back().end > size ? "it is cut off" : "it has too many parts");
    } while (parts_.back().end < size);
    last_.resize(machine_.frames);
    for (std::size_t part = 0; part < parts_.size(); ++part)
        for (const std::uint32_t frame : parts_[part].frames)
            last_[frame] = static_cast<std::uint8_t>(part + 1);
    for (std::uint32_t frame = 0; frame < machine_.frames; ++frame)
        if (last_[frame] != 0)
            frames_.push_back(frame);
}

StateFile::Part StateFile::read_part(std::uint64_t at, const Digest& base, const Part* before) {
    std::vector<std::byte> bytes(kStateHeaderBytes);
    if (read_at(file_, at, bytes, what_) != bytes.size())
        bad("it is cut off");
    ByteReader in(bytes, "its header");
    std::array<std::uint8_t, 8> magic{};
    StateHeader header;
    take(in, magic);
    header.metadata_bytes = in.get<std::uint64_t>();
    header.frames = in.get<std::uint32_t>();
    header.count = in.get<std::uint32_t>();
    take(in, header.base.bytes);
    take(in, header.before.bytes);
    take(in, header.body.bytes);
    take(in, header.pages.bytes);
    if (magic != kStateMagic)
        bad("it is no saved state, or of another kvmserver");
    if (header.bytes() != bytes || header.metadata_bytes > format::kMaxMetadataBytes ||
        header.frames > format::kMaxFrames || header.count > header.frames ||
        header.before != (before ? before->header : format::Checksum{}) || (before && header.frames < machine_.frames))
        bad("its header is damaged");
    if (header.base != base)
        bad("it is of a machine of another snapshot");
    std::vector<std::byte> body(header.body_bytes());
    if (read_at(file_, at + kStateHeaderBytes, body, what_) != body.size() || format::checksum_of(body) != header.body)
        bad("it is damaged");
    try {
        machine_ = decode_metadata(std::span(body).first(header.metadata_bytes)).machine;
    } catch (const FormatError& error) {
        bad(error.what());
    }
    Part part{.frames = std::vector<std::uint32_t>(header.count),
              .pages_at = at + header.before_pages(),
              .end = at + header.part_bytes(),
              .pages = header.pages,
              .header = format::checksum_of(bytes)};
    std::memcpy(part.frames.data(), body.data() + header.metadata_bytes, header.numbers_bytes());
    if (machine_.frames != header.frames || !std::ranges::is_sorted(part.frames, std::less_equal<>()) ||
        (!part.frames.empty() && part.frames.back() >= header.frames))
        bad("its frames are no frames of its memory");
    return part;
}

void StateFile::read_pages(const std::function<void(std::uint32_t, std::span<const std::byte>)>& fn,
                           std::size_t part) const {
    for (; part < parts_.size(); ++part)
        read_part_pages(part, fn);
}

void StateFile::read_part_pages(std::size_t number,
                                const std::function<void(std::uint32_t, std::span<const std::byte>)>& fn) const {
    const Part& part = parts_[number];
    const std::vector<std::uint32_t>& frames = part.frames;
    const auto wanted = [&](std::size_t at) { return last_[frames[at]] == number + 1; };
    format::RunningChecksum sum;
    IoBuffer buffer(std::min(kPagesAtOnce, frames.size()) * kPageSize);
    std::uint64_t at = part.pages_at;
    for (std::size_t done = 0; done < frames.size();) {
        std::size_t run = 1;
        while (run < kPagesAtOnce && done + run < frames.size() && frames[done + run] == frames[done] + run &&
               wanted(done + run) == wanted(done))
            ++run;
        const auto pages = std::span(buffer).first(run * kPageSize);
        if (read_at(file_, at, pages, what_) != pages.size())
            bad("it is cut off");
        sum.add(pages);
        if (wanted(done))
            fn(frames[done], pages);
        at += pages.size();
        done += run;
    }
    if (sum.finish() != part.pages)
        bad("its pages are damaged");
}

} // namespace kvmserver
