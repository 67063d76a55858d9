#include "src/store/chunk_files.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include "src/store/errors.hpp"

namespace kvmserver::store {

namespace {

[[noreturn]] void bad(const Folder& folder, const Digest& digest, const char* why) {
    throw UserError(ExitCode::bad_snapshot,
                    fmt::format("{}: {}: `kvmserver verify` says what needs it; deploy that again",
                                folder.full(chunk_path(digest)), why));
}

} // namespace

std::string chunk_folder(const Digest& digest) {
    return fmt::format("{}/{}", kChunks, digest.hex().substr(0, 2));
}
std::string chunk_path(const Digest& digest) {
    return fmt::format("{}/{}", chunk_folder(digest), digest.hex());
}

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

std::vector<std::byte> read_chunk(const Folder& folder, const Digest& digest, std::uint64_t length) {
    const auto file = open_chunk(folder, digest, length);
    std::vector<std::byte> bytes(static_cast<std::size_t>(length));
    if (read_at(file.get(), bytes, 0, folder.full(chunk_path(digest))) != bytes.size() ||
        sha256(bytes) != digest)
        bad(folder, digest, "is altered");
    return bytes;
}

} // namespace kvmserver::store
