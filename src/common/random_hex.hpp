#pragma once

#include <cstddef>
#include <string>

namespace kvmserver {

// Hexadecimal digits of that many bytes of the kernel's randomness, 256 at most. Throws HostError.
std::string random_hex(std::size_t bytes);

} // namespace kvmserver
