// Guest addresses as types of their own: they do not convert to each other, to host pointers or from bare
// integers by accident.
#pragma once
#include <compare>
#include <cstdint>

namespace tinykvm {

inline constexpr std::uint64_t kPageSize = 4096;
inline constexpr std::uint64_t page_down(std::uint64_t v) { return v & ~(kPageSize - 1); }
// Wraps to 0 within the last page of the 64-bit range: callers check sizes first.
inline constexpr std::uint64_t page_up(std::uint64_t v) { return (v + kPageSize - 1) & ~(kPageSize - 1); }

struct GuestVirt {
    std::uint64_t value = 0;
    constexpr GuestVirt() = default;
    explicit constexpr GuestVirt(std::uint64_t v) : value(v) {}
    constexpr auto operator<=>(const GuestVirt&) const = default;
    constexpr GuestVirt operator+(std::uint64_t n) const { return GuestVirt(value + n); }
};

struct GuestPhys {
    std::uint64_t value = 0;
    constexpr GuestPhys() = default;
    explicit constexpr GuestPhys(std::uint64_t v) : value(v) {}
    constexpr auto operator<=>(const GuestPhys&) const = default;
    constexpr GuestPhys operator+(std::uint64_t n) const { return GuestPhys(value + n); }
};

} // namespace tinykvm
