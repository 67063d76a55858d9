// SHA-256 of a file.
#pragma once
#include <string>

namespace kvmserver {

// 64 hexadecimal digits; reads from the beginning, whatever the offset. Throws HostError.
std::string sha256_of_file(int fd);

} // namespace kvmserver
