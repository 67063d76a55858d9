// SHA-256, as 64 hexadecimal digits.
#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace kvmserver {

std::string sha256_of(std::span<const std::byte> bytes);
// Reads from the beginning, whatever the offset. Throws HostError.
std::string sha256_of_file(int fd);

} // namespace kvmserver
