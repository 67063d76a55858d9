#include "src/store/snapshots/chunk_files.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <vector>

#include "src/store/errors.hpp"
#include "tinykvm/base/io_buffer.hpp"
#include "tinykvm/base/read.hpp"

namespace kvmserver::store {

namespace {

[[noreturn]] void bad(const Folder& folder, const Digest& digest, const char* why) {
    throw UserError(ExitCode::bad_snapshot,
                    fmt::format("{}: {}: `kvmserver verify` says what needs it; deploy that again",
                                folder.full(chunk_path(digest)), why));
}

} // namespace

std::string chunk_folder(const Digest& digest) { return fmt::format("{}/{}", kChunks, digest.hex().substr(0, 2)); }
std::string chunk_path(const Digest& digest) { return fmt::format("{}/{}", chunk_folder(digest), digest.hex()); }

std::optional<Digest> chunk_named(std::string_view folder, std::string_view name) {
    const auto digest = Digest::from_hex(name);
    return digest && name.substr(0, 2) == folder ? digest : std::nullopt;
}

bool has_chunk(const Folder& folder, const Digest& digest, std::uint64_t length) {
    return folder.size_of(chunk_path(digest)) == length;
}

tinykvm::UniqueFd open_chunk(const Folder& folder, const Digest& digest, std::uint64_t length) {
    auto file = folder.open_read(chunk_path(digest));
    if (!file)
        bad(folder, digest, "is missing");
    struct stat info {};
    if (::fstat(file.get(), &info) != 0 || static_cast<std::uint64_t>(info.st_size) != length)
        bad(folder, digest, "has another length than it must have");
    return file;
}

void read_chunk(const Folder& folder, const Digest& digest, std::uint64_t length,
                const std::function<void(std::span<const std::byte>)>& take) {
    constexpr std::size_t kBlock = 256 << 10;
    const auto file = open_chunk(folder, digest, length);
    tinykvm::IoBuffer buffer(static_cast<std::size_t>(std::min<std::uint64_t>(length, kBlock)));
    Sha256 sum;
    for (std::uint64_t at = 0; at < length;) {
        const auto part =
            std::span(buffer).first(static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), length - at)));
        if (tinykvm::read_at(file.get(), at, part, "read " + folder.full(chunk_path(digest))) != part.size())
            bad(folder, digest, "is altered");
        sum.update(part);
        take(part);
        at += part.size();
    }
    if (sum.finish() != digest)
        bad(folder, digest, "is altered");
}

std::vector<std::byte> read_chunk(const Folder& folder, const Digest& digest, std::uint64_t length) {
    std::vector<std::byte> bytes;
    read_chunk(folder, digest, length,
               [&](std::span<const std::byte> part) { bytes.insert(bytes.end(), part.begin(), part.end()); });
    return bytes;
}

} // namespace kvmserver::store
