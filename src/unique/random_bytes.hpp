#pragma once
#include <algorithm>
#include <bitset>
#include <cstddef>
#include <span>

namespace kvmserver::unique {

// Whether the bytes may be random: not text, numbers, code or an ordered table. Compressed data passes as well.
inline bool may_be_random_bytes(std::span<const std::byte> bytes) {
    for (std::size_t at = 0; at < bytes.size(); at += 64) {
        std::bitset<256> seen;
        for (const std::byte value : bytes.subspan(at, std::min<std::size_t>(64, bytes.size() - at)))
            seen.set(static_cast<std::size_t>(value));
        if (bytes.size() - at >= 64 && seen.count() < 40) // 57 are expected
            return false;
    }
    return true;
}

} // namespace kvmserver::unique
