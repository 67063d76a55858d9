// Reversible rearrangements of a chunk's bytes that let zstd find more in it (FORMAT.md, "Filters").
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace kvmserver {

// The numbers are those of the file.
enum class Filter : std::uint8_t {
    none = 0,
    x86 = 1,     // targets of CALL and JMP rel32 made absolute
    planes2 = 2, // bytes of 2-byte units gathered by their place in the unit
    planes4 = 3,
    planes8 = 4,
};
inline constexpr std::array kFilters{Filter::none, Filter::x86, Filter::planes2, Filter::planes4, Filter::planes8};
const char* name_of(Filter filter);

// `to` has from.size() bytes and does not overlap `from`; the size is a multiple of 8.
void apply_filter(Filter filter, std::span<const std::byte> from, std::byte* to);
void undo_filter(Filter filter, std::span<const std::byte> from, std::byte* to);

} // namespace kvmserver
