// xorshift128+ as V8 and JavaScriptCore step it (shifts 23, 17 and 26).
#pragma once
#include <cstdint>

namespace kvmserver::unique {

struct Xorshift128 {
    std::uint64_t s0 = 0, s1 = 0;

    constexpr void step() {
        std::uint64_t a = s0;
        const std::uint64_t b = s1;
        s0 = b;
        a ^= a << 23;
        a ^= a >> 17;
        a ^= b;
        a ^= b >> 26;
        s1 = a;
    }
    constexpr void back() {
        const std::uint64_t b = s0; // was s1
        std::uint64_t a = s1 ^ (b >> 26) ^ b;
        a ^= (a >> 17) ^ (a >> 34) ^ (a >> 51);
        a ^= (a << 23) ^ (a << 46);
        s1 = b;
        s0 = a;
    }
    constexpr bool operator==(const Xorshift128&) const = default;
};

} // namespace kvmserver::unique
