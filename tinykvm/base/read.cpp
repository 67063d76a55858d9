#include "tinykvm/base/read.hpp"

#include <unistd.h>

#include <array>
#include <cerrno>

#include "tinykvm/base/error.hpp"

namespace tinykvm {

std::optional<std::size_t> read_at(int fd, std::uint64_t offset, std::span<std::byte> bytes) {
    std::size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t n = ::pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return std::nullopt;
        if (n == 0)
            break;
        done += static_cast<std::size_t>(n);
    }
    return done;
}

std::size_t read_at(int fd, std::uint64_t offset, std::span<std::byte> bytes, const std::string& what) {
    const auto count = read_at(fd, offset, bytes);
    if (!count)
        throw_errno(what);
    return *count;
}

std::string read_text(int fd, const std::string& what) {
    std::string text;
    std::array<char, 8192> buffer; // small: all of the stack that is used stays in memory
    for (;;) {
        const std::size_t count = read_at(fd, text.size(), std::as_writable_bytes(std::span(buffer)), "read " + what);
        text.append(buffer.data(), count);
        if (count < buffer.size())
            return text;
    }
}

} // namespace tinykvm
