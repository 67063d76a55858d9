#include "src/snapshot/unpacked.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "src/snapshot/output_file.hpp"
#include "src/snapshot/reader.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/read.hpp"

namespace kvmserver {
namespace {

namespace fs = std::filesystem;

// The file: Head, an Entry for each hot chunk, then their pages. Host byte order: it never leaves the
// machine.
constexpr std::array<char, 8> kMagic{'K', 'V', 'M', 'u', 'n', 'p', 'k', '1'};
struct Head {
    std::array<char, 8> magic = kMagic;
    std::uint64_t chunks = 0;
    format::Checksum snapshot; // of its header
    format::Checksum entries;  // of all Entries
};

bool read_all(int fd, std::uint64_t offset, std::span<std::byte> bytes) {
    return tinykvm::read_at(fd, offset, bytes) == bytes.size();
}

bool is_ours(const struct stat& info) { return info.st_uid == ::geteuid() && (info.st_mode & 0077) == 0; }

std::size_t hot_chunks(const SnapshotReader& snapshot) {
    const auto chunks = snapshot.chunks();
    return static_cast<std::size_t>(std::ranges::find(chunks, false, &ChunkInfo::hot) - chunks.begin());
}

} // namespace

std::span<const std::byte> UnpackedCopy::chunk(std::size_t number) const {
    if (number >= entries_.size())
        return {};
    const Entry& entry = entries_[number];
    thread_local std::vector<std::byte> buffer;
    buffer.resize(std::max<std::size_t>(buffer.size(), entry.bytes));
    const auto bytes = std::span(buffer).first(entry.bytes);
    if (!read_all(fd_.get(), entry.offset, bytes) || format::checksum_of(bytes) != entry.checksum)
        return {};
    return bytes;
}

UnpackedCache::UnpackedCache(fs::path folder, std::uint64_t most_bytes)
    : folder_(std::move(folder)), most_bytes_(most_bytes) {}

bool UnpackedCache::usable() const {
    struct stat info {};
    return !folder_.empty() && ::lstat(folder_.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && is_ours(info);
}

bool UnpackedCache::make_folder() const {
    if (folder_.empty())
        return false;
    ::mkdir(folder_.parent_path().c_str(), 0700); // ~/.cache; that the home itself is missing has its reason
    ::mkdir(folder_.c_str(), 0700);
    return usable();
}

// A copy belongs to the very bytes it was made of: checksums alone, which are made to find damage, could be
// made to agree by the maker of another snapshot, whose pages would then run in this one.
fs::path UnpackedCache::path_of(const SnapshotReader& snapshot) const {
    return folder_ / (snapshot.identity() + ".unpacked");
}

std::optional<UnpackedCopy> UnpackedCache::find(const SnapshotReader& snapshot) const {
    if (!usable())
        return std::nullopt;
    UnpackedCopy copy;
    copy.fd_.reset(::open(path_of(snapshot).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    struct stat info {};
    Head head;
    if (!copy.fd_ || ::fstat(copy.fd_.get(), &info) != 0 || !S_ISREG(info.st_mode) || !is_ours(info) ||
        !read_all(copy.fd_.get(), 0, std::as_writable_bytes(std::span(&head, 1))) || head.magic != kMagic ||
        head.chunks != hot_chunks(snapshot) || head.snapshot != snapshot.header_checksum())
        return std::nullopt;
    copy.entries_.resize(head.chunks);
    const auto bytes = std::as_writable_bytes(std::span(copy.entries_));
    if (!read_all(copy.fd_.get(), sizeof(head), bytes) || format::checksum_of(bytes) != head.entries)
        return std::nullopt;
    for (std::size_t i = 0; i < copy.entries_.size(); ++i)
        if (copy.entries_[i].bytes != snapshot.chunks()[i].raw_bytes())
            return std::nullopt;
    ::futimens(copy.fd_.get(), nullptr); // it was used
    return copy;
}

bool UnpackedCache::keep(const SnapshotReader& snapshot) const {
    const std::size_t count = hot_chunks(snapshot);
    std::vector<UnpackedCopy::Entry> entries(count);
    std::uint64_t end = (sizeof(Head) + count * sizeof(UnpackedCopy::Entry) + 4095) & ~std::uint64_t{4095};
    const std::uint64_t begin = end;
    for (std::size_t i = 0; i < count; ++i) {
        entries[i] = {end, snapshot.chunks()[i].raw_bytes(), {}};
        end += entries[i].bytes;
    }
    if (end - begin < kWorthBytes || end > most_bytes_ || !make_folder())
        return false;
    try {
        make_room(end);
        OutputFile file(path_of(snapshot));
        for (std::size_t i = 0; i < count; ++i) {
            const auto pages = snapshot.unpack(i);
            entries[i].checksum = format::checksum_of(pages);
            file.write_at(entries[i].offset, pages);
        }
        Head head;
        head.chunks = count;
        head.snapshot = snapshot.header_checksum();
        head.entries = format::checksum_of(std::as_bytes(std::span(entries)));
        file.write_at(sizeof(head), std::as_bytes(std::span(entries)));
        file.write_at(0, std::as_bytes(std::span(&head, 1)));
        file.publish(OutputFile::Durable::no);
        return true;
    } catch (const tinykvm::UserError& error) {
        if (error.code() == tinykvm::ExitCode::bad_snapshot)
            throw;
    } catch (const std::system_error&) {
    }
    return false;
}

// So that `bytes` more fit.
void UnpackedCache::make_room(std::uint64_t bytes) const {
    struct Old {
        fs::path path;
        fs::file_time_type used;
        std::uint64_t bytes;
    };
    std::vector<Old> copies;
    std::uint64_t sum = bytes;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
        std::error_code gone; // by another process
        if (entry.path().extension() != ".unpacked" || !entry.is_regular_file(gone))
            continue;
        Old old{entry.path(), entry.last_write_time(gone), entry.file_size(gone)};
        if (gone)
            continue;
        sum += old.bytes;
        copies.push_back(std::move(old));
    }
    std::ranges::sort(copies, {}, &Old::used);
    for (const Old& old : copies) {
        if (sum <= most_bytes_)
            break;
        std::error_code ignored;
        fs::remove(old.path, ignored);
        sum -= old.bytes;
    }
}

fs::path default_cache_folder() {
    const auto from = [](const char* name, const char* below) -> fs::path {
        const char* value = std::getenv(name);
        return value && *value == '/' ? fs::path(value) / below : fs::path();
    };
    for (const auto& folder : {from("CACHE_DIRECTORY", "unpacked"), from("XDG_CACHE_HOME", "kvmserver"),
                               from("HOME", ".cache/kvmserver")})
        if (!folder.empty())
            return folder;
    return {};
}

} // namespace kvmserver
