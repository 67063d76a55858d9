// Whole writes: over interruptions and short counts.
#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace tinykvm {

// Writes all of `bytes` where the descriptor stands; a blocking one. Throws HostError naming `what`; some of
// them may be written then.
void write_all(int fd, std::span<const std::byte> bytes, const std::string& what);

} // namespace tinykvm
