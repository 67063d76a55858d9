// Files with secrets.
#pragma once
#include <cstddef>
#include <string>

namespace kvmserver {

inline constexpr std::size_t kMaxPrivateFile = 64 << 10;

// The text of a regular file that not everyone may read. Throws UserError (usage): one line that begins with `what` and
// the file's name, and never contains a part of it.
std::string read_private_file(const std::string& what, const std::string& file);

} // namespace kvmserver
