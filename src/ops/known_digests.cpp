#include "src/ops/known_digests.hpp"

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>

namespace kvmserver::ops {
namespace {

std::string name_of(const FileStamp& file) { return fmt::format("digest-{:x}-{:x}", file.device, file.inode); }

// What an entry begins with. The digest in hexadecimal follows.
std::string beginning(const FileStamp& file) {
    return fmt::format("{} {} {} ", file.bytes, file.seconds, file.nanoseconds);
}

} // namespace

std::optional<Digest> known_digest(const FolderCache& cache, const FileStamp& file) {
    const auto entry = cache.read(name_of(file));
    if (!entry)
        return std::nullopt;
    const std::string_view text(reinterpret_cast<const char*>(entry->data()), entry->size());
    const std::string begin = beginning(file);
    return text.starts_with(begin) ? Digest::from_hex(text.substr(begin.size())) : std::nullopt;
}

void note_digest(const FolderCache& cache, const FileStamp& file, const Digest& digest) {
    const std::string entry = beginning(file) + digest.hex();
    if (file.settled())
        cache.write(name_of(file), std::as_bytes(std::span(entry)));
}

} // namespace kvmserver::ops
