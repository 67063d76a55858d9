#include "tinykvm/machine/entropy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tinykvm/abi/layout.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/random_stream.hpp"
#include "tinykvm/machine/image_memory.hpp"
#include "tinykvm/machine/machine.hpp"

namespace tinykvm {

namespace {

void check_entropy_region(const EntropyRegion& region) {
    constexpr std::uint64_t kMaxBytes = 1 << 20;
    const auto bad = [&](const char* why) {
        throw UserError(ExitCode::bad_snapshot,
                        fmt::format("snapshot: entropy region {:#x} {}; build it again", region.at, why));
    };
    if (region.bytes == 0 || region.bytes > kMaxBytes || region.at >= layout::kUserMax ||
        region.bytes > layout::kUserMax - region.at)
        bad("is not in the program's memory");
    if (region.fill > EntropyFill::pid)
        bad("is of an unknown kind");
    if (region.constant.size() != (region.fill == EntropyFill::constant ? region.bytes : 0))
        bad("has a constant of another size");
    if (region.fill == EntropyFill::pid &&
        (region.bytes != sizeof(std::uint32_t) || region.at % sizeof(std::uint32_t) != 0))
        bad("is not a process id");
}

// Whether the bytes around a range of a page differ from the image.
bool differs_around(const GuestRam& ram, Frame frame, std::size_t begin, std::size_t bytes) {
    constexpr std::size_t kAround = 64; // headers of objects and of allocations
    const auto own = ram.frame_bytes(frame);
    const auto image = std::span(ram.image()->data() + frame_address(frame).value, kPageSize);
    const std::size_t end = begin + bytes;
    const auto differs = [&](std::size_t from, std::size_t to) {
        return !std::ranges::equal(own.subspan(from, to - from), image.subspan(from, to - from));
    };
    return differs(begin - std::min(begin, kAround), begin) ||
           differs(end, std::min<std::size_t>(end + kAround, kPageSize));
}

} // namespace

void check_entropy_regions(std::span<const EntropyRegion> regions) {
    std::uint64_t bytes = 0;
    for (const EntropyRegion& region : regions) {
        check_entropy_region(region);
        bytes += region.bytes;
    }
    if (regions.size() > kMaxEntropyRegions || bytes > kMaxEntropyBytes)
        throw UserError(
            ExitCode::bad_snapshot,
            fmt::format("snapshot: more than {} entropy regions, or more than {} MiB of them; build it again",
                        kMaxEntropyRegions, kMaxEntropyBytes >> 20));
}

EntropyRegions::EntropyRegions(std::span<const EntropyRegion> regions, GuestRam& ram, const PageTables& tables) {
    for (const EntropyRegion& region : regions) {
        for (std::uint64_t at = region.at, end = region.at + region.bytes; at < end;) {
            const std::uint64_t entry = tables.get(GuestVirt(at)), in_page = at % kPageSize,
                                bytes = std::min(kPageSize - in_page, end - at);
            const Frame frame = pte::frame(entry);
            constexpr std::uint64_t kWanted = pte::kWrite | pte::kUser;
            if (!pte::mapped(entry) || (entry & kWanted) != kWanted || frame >= ram.image_frames() || ram.shared(frame))
                throw UserError(
                    ExitCode::bad_snapshot,
                    fmt::format("snapshot: entropy region {:#x} is not in writable memory; build it again", region.at));
            ram.image()->ensure(frame); // a private copy of a page that is not loaded would lack its content
            const std::uint8_t* const constant =
                region.fill == EntropyFill::constant ? region.constant.data() + (at - region.at) : nullptr;
            pieces_.push_back(
                {region.fill, ram.frame_bytes(frame).subspan(in_page, bytes), constant, GuestVirt(at), frame});
            frames_.push_back(frame);
            at += bytes;
        }
    }
    std::sort(frames_.begin(), frames_.end());
    frames_.erase(std::unique(frames_.begin(), frames_.end()), frames_.end());
}

void EntropyRegions::fill(RandomStream& random, std::uint32_t pid) const {
    for (const Piece& piece : pieces_) {
        switch (piece.fill) {
        case EntropyFill::random: random.fill(piece.to); break;
        case EntropyFill::constant: std::memcpy(piece.to.data(), piece.constant, piece.to.size()); break;
        case EntropyFill::pid: std::memcpy(piece.to.data(), &pid, sizeof(pid)); break;
        }
    }
}

bool EntropyRegions::surroundings_changed(const GuestRam& ram, const PageTables& tables) const {
    return std::any_of(pieces_.begin(), pieces_.end(), [&](const Piece& piece) {
        return pte::frame(tables.get(piece.at)) != piece.frame ||
               differs_around(ram, piece.frame, piece.at.value % kPageSize, piece.to.size());
    });
}

bool entropy_may_have_moved(std::span<const EntropyRegion> regions, const MachineImage& image, const GuestRam& ram,
                            const PageTables& tables) {
    for (const EntropyRegion& region : regions)
        for (std::uint64_t at = region.at, end = region.at + region.bytes; at < end;) {
            const std::uint64_t in_page = at % kPageSize, bytes = std::min(kPageSize - in_page, end - at);
            const auto frame = frame_in(image, GuestVirt(at));
            if (!frame || pte::frame(tables.get(GuestVirt(at))) != *frame ||
                differs_around(ram, *frame, in_page, bytes))
                return true;
            at += bytes;
        }
    return false;
}

} // namespace tinykvm
