#include "src/unique/xorshift128_walk.hpp"

#include <utility>

namespace kvmserver::unique {

namespace {

constexpr Xorshift128 operator^(const Xorshift128& a, const Xorshift128& b) { return {a.s0 ^ b.s0, a.s1 ^ b.s1}; }

Xorshift128 with_bit(int bit) {
    return bit < 64 ? Xorshift128{std::uint64_t{1} << bit, 0} : Xorshift128{0, std::uint64_t{1} << (bit - 64)};
}

} // namespace

Xorshift128Walk::Xorshift128Walk() {
    for (int byte = 0; byte < 16; ++byte) {
        auto& table = back_[static_cast<std::size_t>(byte)];
        table[0] = {};
        for (int bit = 0; bit < 8; ++bit) {
            Xorshift128 state = with_bit(8 * byte + bit);
            for (std::uint64_t i = 0; i < kStride; ++i)
                state.back();
            table[std::size_t{1} << bit] = state;
        }
        for (std::size_t value = 1; value < table.size(); ++value) {
            const std::size_t lowest = value & (~value + 1);
            table[value] = table[value ^ lowest] ^ table[lowest];
        }
    }
}

Xorshift128 Xorshift128Walk::stride_back(const Xorshift128& state) const {
    Xorshift128 out;
    for (std::size_t byte = 0; byte < 8; ++byte)
        out = out ^ back_[byte][state.s0 >> (8 * byte) & 0xff] ^ back_[8 + byte][state.s1 >> (8 * byte) & 0xff];
    return out;
}

bool Xorshift128Walk::leads_to(Xorshift128 from, Xorshift128 to) const {
    constexpr std::size_t kBuckets = 4 * kStride;
    constexpr std::uint16_t kNone = 0xffff;
    static_assert(kStride < kNone);
    std::array<std::uint16_t, kBuckets> first;
    std::array<std::uint16_t, kStride> next;
    std::array<Xorshift128, kStride> steps;
    first.fill(kNone);
    for (std::size_t i = 0; i < kStride; ++i, from.step()) {
        steps[i] = from;
        next[i] = std::exchange(first[from.s0 % kBuckets], static_cast<std::uint16_t>(i));
    }
    for (std::uint64_t strides = 0; strides < kStride; ++strides, to = stride_back(to))
        for (std::uint16_t i = first[to.s0 % kBuckets]; i != kNone; i = next[i])
            if (steps[i] == to)
                return true;
    return false;
}

} // namespace kvmserver::unique
