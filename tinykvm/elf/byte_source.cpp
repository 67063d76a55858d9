#include "tinykvm/elf/byte_source.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/read.hpp"

namespace tinykvm {
namespace {

std::uint64_t file_size(int fd, const std::string& what) {
    struct stat st {};
    if (::fstat(fd, &st) != 0)
        throw_errno("stat " + what);
    return static_cast<std::uint64_t>(std::max<off_t>(st.st_size, 0));
}

} // namespace

FileSource::FileSource(int fd, const std::string& what) : ByteSource(file_size(fd, what)), fd_(fd) {}

bool FileSource::fetch(std::uint64_t offset, std::span<std::byte> out) const {
    return read_at(fd_, offset, out) == out.size();
}

std::optional<std::string> ByteSource::load_string(std::uint64_t offset, std::uint64_t end, std::size_t max) const {
    end = std::min(end, size_);
    std::string text;
    std::array<char, 128> chunk;
    while (offset < end && text.size() <= max) {
        const std::size_t n = std::min<std::uint64_t>(chunk.size(), end - offset);
        if (!read(offset, std::as_writable_bytes(std::span(chunk.data(), n))))
            return std::nullopt;
        const std::size_t length = ::strnlen(chunk.data(), n);
        text.append(chunk.data(), length);
        if (length < n)
            return text.size() <= max ? std::optional(std::move(text)) : std::nullopt;
        offset += n;
    }
    return std::nullopt;
}

} // namespace tinykvm
