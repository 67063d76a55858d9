#include "src/snapshot/unpacked.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <system_error>
#include <vector>

#include "src/snapshot/format.hpp"
#include "src/snapshot/output_file.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/read.hpp"
#include "tinykvm/memory/image.hpp"

namespace kvmserver {
namespace {

namespace fs = std::filesystem;

constexpr const char* kExtension = ".kept";
constexpr std::time_t kUsedSeconds = 600; // a copy's time of use is told this exactly

// Behind the pages. Copies are not flushed to the disk, so that after a power failure anything may be in
// them: they are checked when they are first used after the machine was started. `boot`: in which run they
// were made or checked.
struct Trailer {
    format::Checksum checksum;
    std::array<char, 36> boot{};
};

const std::array<char, 36>& this_boot() {
    static const auto id = [] {
        std::array<char, 36> text{}; // zeros, which no run has: every copy is checked then
        const tinykvm::UniqueFd file(
            ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC)); // random(4)
        if (file)
            tinykvm::read_at(file.get(), 0, std::as_writable_bytes(std::span(text)));
        return text;
    }();
    return id;
}

bool is_ours(const struct stat& info) { return info.st_uid == ::geteuid() && (info.st_mode & 0077) == 0; }

// Has the host read a file that it may not have in memory yet, in pages as large as it can: small ones, once there, stay.
void have_large(int file, std::uint64_t bytes) {
    if (bytes < tinykvm::LargePages::kBytes)
        return;
    void* at = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (at == MAP_FAILED)
        return;
    (void)!::madvise(at, bytes, MADV_HUGEPAGE);
    (void)!::madvise(at, bytes, tinykvm::kMadvPopulateRead); // tells an error of the disk, where a touch would be a signal
    ::munmap(at, bytes);
}

void note_use(int file, const struct stat& info) {
    if (std::time(nullptr) - info.st_mtim.tv_sec > kUsedSeconds)
        ::futimens(file, nullptr);
}

} // namespace

UnpackedCache::UnpackedCache(fs::path folder, std::uint64_t room) : folder_(std::move(folder)), room_(room) {}

bool UnpackedCache::usable() const {
    if (folder_.empty())
        return false;
    struct stat info {};
    if (::lstat(folder_.c_str(), &info) != 0)
        return errno == ENOENT && make_folder();
    return S_ISDIR(info.st_mode) && is_ours(info);
}

bool UnpackedCache::make_folder() const {
    ::mkdir(folder_.parent_path().c_str(), 0700); // ~/.cache; that the home itself is missing has its reason
    return ::mkdir(folder_.c_str(), 0700) == 0 || errno == EEXIST;
}

std::optional<UnpackedChunk> UnpackedCache::open(const std::string& name,
                                                 std::optional<std::uint64_t> expected) const {
    UnpackedChunk chunk;
    const fs::path path = folder_ / (name + kExtension);
    chunk.file.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    struct stat info {};
    if (!chunk.file || ::fstat(chunk.file.get(), &info) != 0 || !S_ISREG(info.st_mode) || !is_ours(info) ||
        info.st_size <= static_cast<off_t>(sizeof(Trailer)))
        return std::nullopt;
    const std::uint64_t bytes = chunk.bytes = static_cast<std::uint64_t>(info.st_size) - sizeof(Trailer);
    if (expected.value_or(bytes) != bytes)
        return std::nullopt;
    Trailer trailer;
    if (tinykvm::read_at(chunk.file.get(), bytes, std::as_writable_bytes(std::span(&trailer, 1))) !=
        sizeof(trailer))
        return std::nullopt;
    if (trailer.boot != this_boot() || this_boot() == std::array<char, 36>{}) {
        have_large(chunk.file.get(), bytes);
        // Read, not mapped: an error of the disk is an answer then.
        std::vector<std::byte> pages(bytes);
        if (tinykvm::read_at(chunk.file.get(), 0, pages) != bytes ||
            format::checksum_of(pages) != trailer.checksum)
            return std::nullopt;
        const tinykvm::UniqueFd again(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
        (void)!::pwrite(again.get(), this_boot().data(), this_boot().size(),
                        static_cast<off_t>(bytes + offsetof(Trailer, boot)));
    }
    note_use(chunk.file.get(), info);
    return chunk;
}

std::optional<UnpackedChunk> UnpackedCache::find(const std::string& name, std::uint64_t bytes) const {
    try {
        return usable() ? open(name, bytes) : std::nullopt;
    } catch (const std::system_error&) { // the disk
        return std::nullopt;
    }
}

std::optional<std::vector<std::byte>> UnpackedCache::read(const std::string& name) const {
    try {
        const auto copy = usable() ? open(name, std::nullopt) : std::nullopt;
        if (!copy)
            return std::nullopt;
        std::vector<std::byte> bytes(copy->bytes);
        if (tinykvm::read_at(copy->file.get(), 0, bytes) == bytes.size())
            return bytes;
    } catch (const std::system_error&) {
    }
    return std::nullopt;
}

std::optional<UnpackedChunk> UnpackedCache::keep(const std::string& name,
                                                 std::span<const std::byte> pages) const {
    try {
        if (!usable())
            return std::nullopt;
        if (auto there = open(name, pages.size())) // those who map it should map the same file
            return there;
        OutputFile file(folder_ / (name + kExtension));
        const Trailer trailer{format::checksum_of(pages), this_boot()};
        file.write_at(0, pages);
        file.write_at(pages.size(), std::as_bytes(std::span(&trailer, 1)));
        file.publish(OutputFile::Durable::no);
        return open(name, pages.size());
    } catch (const tinykvm::UserError&) { // the folder is gone, or may not be written to
    } catch (const std::system_error&) {
    }
    return std::nullopt;
}

void UnpackedCache::make_room() const {
    try {
        if (usable())
            remove_old();
    } catch (const std::exception&) { // others remove files at the same time, or the folder
    }
}

void UnpackedCache::remove_old() const {
    struct Old {
        fs::path path;
        fs::file_time_type used;
        std::uint64_t bytes;
    };
    std::uint64_t room = room_;
    struct statvfs file_system {};
    if (room == 0)
        room = ::statvfs(folder_.c_str(), &file_system) == 0
                   ? std::max<std::uint64_t>(kLeastRoom,
                                             std::uint64_t{file_system.f_blocks} * file_system.f_frsize / 10)
                   : kLeastRoom;
    std::vector<Old> copies;
    std::uint64_t sum = 0;
    std::error_code gone; // by another process
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_, gone)) {
        const auto extension = entry.path().extension();
        // `.unpacked`: of earlier versions, which nothing reads any more. `.tmp`: of a writer that was
        // killed.
        const bool stale =
            extension == ".unpacked" ||
            (extension == ".tmp" &&
             entry.last_write_time(gone) < fs::file_time_type::clock::now() - std::chrono::hours(1));
        if ((!stale && extension != kExtension) || !entry.is_regular_file(gone))
            continue;
        if (stale) {
            fs::remove(entry.path(), gone);
            continue;
        }
        gone.clear();
        Old old{entry.path(), entry.last_write_time(gone), entry.file_size(gone)};
        if (gone)
            continue;
        sum += old.bytes;
        copies.push_back(std::move(old));
    }
    std::ranges::sort(copies, {}, &Old::used);
    for (const Old& old : copies) {
        if (sum <= room)
            break;
        fs::remove(old.path, gone);
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
