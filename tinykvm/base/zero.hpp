// Whether memory is all zero.
#pragma once
#include <cstddef>
#include <cstring>
#include <span>

namespace tinykvm {

// `bytes` must not be empty.
inline bool is_zero(std::span<const std::byte> bytes) {
    return bytes[0] == std::byte{0} && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

} // namespace tinykvm
