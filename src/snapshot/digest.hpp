// SHA-256, as bytes or as 64 hexadecimal digits.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace kvmserver {

using Sha256 = std::array<std::uint8_t, 32>;

Sha256 sha256_bytes(std::span<const std::byte> bytes);
std::string sha256_of(std::span<const std::byte> bytes);
// Reads from the beginning, whatever the offset. Throws HostError.
std::string sha256_of_file(int fd);

} // namespace kvmserver
