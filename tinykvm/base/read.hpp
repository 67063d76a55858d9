// Whole reads of parts of files: over interruptions and short counts.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace tinykvm {

// Fills `bytes` from byte `offset` of the file on, as far as the file goes; how many there were. Nothing: it
// failed, and errno says why.
std::optional<std::size_t> read_at(int fd, std::uint64_t offset, std::span<std::byte> bytes);

// The same; throws HostError with `what` ("read the upload") when it fails.
std::size_t read_at(int fd, std::uint64_t offset, std::span<std::byte> bytes, const std::string& what);

// All of a file, wherever its position is. Throws HostError naming `what`.
std::string read_text(int fd, const std::string& what);

} // namespace tinykvm
