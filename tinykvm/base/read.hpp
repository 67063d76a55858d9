// Complete reads of parts of files: they retry after interruptions and short reads.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace tinykvm {

// Fills `bytes` from byte `offset` of the file on, as far as the file goes. Returns the number of bytes read; nullopt
// on failure, with errno set.
std::optional<std::size_t> read_at(int fd, std::uint64_t offset, std::span<std::byte> bytes);

// The same, but throws HostError with `what` ("read the upload") on failure.
std::size_t read_at(int fd, std::uint64_t offset, std::span<std::byte> bytes, const std::string& what);

// The whole file, regardless of its position. Throws HostError naming `what`.
std::string read_text(int fd, const std::string& what);

} // namespace tinykvm
