#pragma once

#include <cstddef>
#include <string>

namespace kvmserver {

// Reads `bytes` random bytes (at most 256) from the kernel and returns them as hexadecimal digits. Throws HostError.
std::string random_hex(std::size_t bytes);

} // namespace kvmserver
