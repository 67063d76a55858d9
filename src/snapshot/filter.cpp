#include "src/snapshot/filter.hpp"

#include <emmintrin.h>

#include <bit>
#include <cstring>

namespace kvmserver {

namespace {

// Operands within this distance are taken for branches in the same program; other values after an E8 or E9 byte are
// data.
constexpr std::uint32_t kReach = 1u << 26;

// Offset of the first E8 or E9 byte at or after `i`; any value >= size - 4 when there is none.
inline std::size_t next_branch(const unsigned char* p, std::size_t i, std::size_t size) {
    const __m128i mask = _mm_set1_epi8(static_cast<char>(0xfe)), opcode = _mm_set1_epi8(static_cast<char>(0xe8));
    for (; i + 16 <= size; i += 16) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + i));
        const int hits = _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_and_si128(bytes, mask), opcode));
        if (hits != 0)
            return i + static_cast<std::size_t>(std::countr_zero(static_cast<unsigned>(hits)));
    }
    while (i < size && (p[i] & 0xfe) != 0xe8)
        ++i;
    return i;
}

// Adds (or subtracts) the address of the instruction's end to the operand, modulo the reach. This is a bijection on
// [-kReach, kReach) and leaves other operands alone. Operands are skipped, so that both directions see the same
// opcodes.
template <bool to_absolute>
void convert_branches(std::byte* bytes, std::size_t size) {
    auto* p = reinterpret_cast<unsigned char*>(bytes);
    for (std::size_t i = 0; (i = next_branch(p, i, size)) + 5 <= size;) {
        std::uint32_t operand;
        std::memcpy(&operand, p + i + 1, sizeof operand);
        i += 5;
        if (operand + kReach < 2 * kReach) {
            const auto end = static_cast<std::uint32_t>(i);
            const std::uint32_t moved = operand + kReach + (to_absolute ? end : 0u - end);
            operand = (moved & (2 * kReach - 1)) - kReach;
            std::memcpy(p + i - 4, &operand, sizeof operand);
        }
    }
}

template <std::size_t unit>
void split_planes(std::span<const std::byte> from, std::byte* __restrict to) {
    const std::size_t units = from.size() / unit;
    const std::byte* __restrict in = from.data();
    for (std::size_t i = 0; i < units; ++i)
        for (std::size_t k = 0; k < unit; ++k)
            to[k * units + i] = in[i * unit + k];
}

template <std::size_t unit>
void join_planes(std::span<const std::byte> from, std::byte* __restrict to) {
    const std::size_t units = from.size() / unit;
    const std::byte* __restrict in = from.data();
    for (std::size_t i = 0; i < units; ++i)
        for (std::size_t k = 0; k < unit; ++k)
            to[i * unit + k] = in[k * units + i];
}

} // namespace

const char* name_of(Filter filter) {
    constexpr std::array names{"none", "x86", "planes2", "planes4", "planes8"};
    return names[static_cast<std::size_t>(filter)];
}

void apply_filter(Filter filter, std::span<const std::byte> from, std::byte* to) {
    switch (filter) {
    case Filter::planes2: return split_planes<2>(from, to);
    case Filter::planes4: return split_planes<4>(from, to);
    case Filter::planes8: return split_planes<8>(from, to);
    case Filter::none:
    case Filter::x86:
        std::memcpy(to, from.data(), from.size());
        if (filter == Filter::x86)
            convert_branches<true>(to, from.size());
    }
}

void undo_filter(Filter filter, std::span<const std::byte> from, std::byte* to) {
    switch (filter) {
    case Filter::planes2: return join_planes<2>(from, to);
    case Filter::planes4: return join_planes<4>(from, to);
    case Filter::planes8: return join_planes<8>(from, to);
    case Filter::none:
    case Filter::x86:
        std::memcpy(to, from.data(), from.size());
        if (filter == Filter::x86)
            convert_branches<false>(to, from.size());
    }
}

} // namespace kvmserver
