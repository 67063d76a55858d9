// Complete writes: they retry after interruptions and short writes.
#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace tinykvm {

// Writes all of `bytes` at the current position of a blocking descriptor. Throws HostError naming `what`; some bytes
// may be written then.
void write_all(int fd, std::span<const std::byte> bytes, const std::string& what);

} // namespace tinykvm
