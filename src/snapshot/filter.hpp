// Reversible transformations of a chunk's bytes that make it compress better (FORMAT.md, "Filters").
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace kvmserver {

// The numbers are part of the file format.
enum class Filter : std::uint8_t {
    none = 0,
    x86 = 1,     // relative targets of CALL and JMP rel32 made absolute
    planes2 = 2, // byte 0 of all 2-byte units, then byte 1 of all
    planes4 = 3,
    planes8 = 4,
};
inline constexpr std::array kFilters{Filter::none, Filter::x86, Filter::planes2, Filter::planes4, Filter::planes8};
const char* name_of(Filter filter);

// `to` has from.size() bytes and does not overlap `from`; the size is a multiple of 8.
void apply_filter(Filter filter, std::span<const std::byte> from, std::byte* to);
void undo_filter(Filter filter, std::span<const std::byte> from, std::byte* to);

} // namespace kvmserver
