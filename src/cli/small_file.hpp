// Files that a command reads as a whole.
#pragma once
#include <cstdint>
#include <string>

namespace kvmserver::cli {

// `what`: what the file holds, for messages. Throws UserError that names the file: not_found, not_permitted, or usage
// if it is no regular file or has more than `most` bytes.
std::string read_small_file(const std::string& path, std::uint64_t most, const std::string& what);

} // namespace kvmserver::cli
