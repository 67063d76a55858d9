#include "tinykvm/base/write.hpp"

#include <unistd.h>

#include <cerrno>

#include "tinykvm/base/error.hpp"

namespace tinykvm {

void write_all(int fd, std::span<const std::byte> bytes, const std::string& what) {
    while (!bytes.empty()) {
        const ssize_t n = ::write(fd, bytes.data(), bytes.size());
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            throw_errno("write " + what);
        bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
}

} // namespace tinykvm
