#include "src/snapshot/folder_cache.hpp"

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

#include "src/snapshot/output_file.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/read.hpp"
#include "tinykvm/base/text.hpp"
#include "tinykvm/memory/image.hpp"

namespace kvmserver {
namespace {

namespace fs = std::filesystem;
using tinykvm::UniqueFd;

constexpr const char* kExtension = ".pages";      // copies of pages
constexpr const char* kOtherExtension = ".other"; // other data
constexpr std::uint64_t kMaxOtherBytes = 16 << 20;
constexpr std::time_t kUsedSeconds = 600; // resolution of the time of last use

// Follows the pages in a file. Copies are not flushed to disk, so after a power failure they may hold anything: the
// SHA-256 is checked on first use after each boot. `boot` is the boot in which that was done. `seconds` is the
// modification time that the file was given then, with no fraction; a later write changes that time.
struct Trailer {
    std::array<char, 36> boot{};
    std::array<char, 4> zero{};
    std::int64_t seconds = 0;
};

const std::array<char, 36>& this_boot() {
    static const auto id = [] {
        std::array<char, 36> text{}; // if unreadable, zeros, which match no boot: every copy is checked
        const UniqueFd file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC)); // random(4)
        if (file)
            tinykvm::read_at(file.get(), 0, std::as_writable_bytes(std::span(text)));
        return text;
    }();
    return id;
}

bool is_ours(const struct stat& info) { return info.st_uid == ::geteuid() && (info.st_mode & 0077) == 0; }

// Reads a file into the page cache in pages as large as possible: small pages, once cached, stay small.
void have_large(int file, std::uint64_t bytes) {
    if (bytes < tinykvm::LargePages::kBytes)
        return;
    void* at = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (at == MAP_FAILED)
        return;
    (void)!::madvise(at, bytes, MADV_HUGEPAGE);
    // Fails on a disk error, where touching the pages would raise SIGBUS.
    (void)!::madvise(at, bytes, tinykvm::kMadvPopulateRead);
    ::munmap(at, bytes);
}

// Records the time of last use as access time. The modification time must stay, as it shows that nobody has written to
// the file.
void note_use(int file, const struct stat& info) {
    const timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
    if (std::time(nullptr) - info.st_atim.tv_sec > kUsedSeconds)
        ::futimens(file, times);
}

// Whether the trailer says that the pages were checked since boot and not modified since.
bool is_checked(int file, std::uint64_t bytes, const struct stat& info) {
    Trailer trailer;
    return tinykvm::read_at(file, bytes, std::as_writable_bytes(std::span(&trailer, 1))) == sizeof(trailer) &&
           trailer.boot == this_boot() && this_boot() != std::array<char, 36>{} &&
           info.st_mtim.tv_sec == trailer.seconds && info.st_mtim.tv_nsec == 0;
}

void note_checked(int file, std::uint64_t bytes) {
    const Trailer trailer{this_boot(), {}, std::time(nullptr)};
    const timespec times[2] = {{0, UTIME_NOW}, {trailer.seconds, 0}};
    if (::pwrite(file, &trailer, sizeof trailer, static_cast<off_t>(bytes)) == sizeof trailer)
        ::futimens(file, times);
}

std::optional<struct stat> ours(int file) {
    struct stat info {};
    if (file < 0 || ::fstat(file, &info) != 0 || !S_ISREG(info.st_mode) || !is_ours(info))
        return std::nullopt;
    return info;
}

} // namespace

FolderCache::FolderCache(fs::path folder, std::uint64_t room) : folder_(std::move(folder)), room_(room) {}

FolderCache FolderCache::of_tenant(std::string_view tenant) const {
    FolderCache other = *this;
    other.tenant_ = tenant.empty() ? "" : sha256(tenant).hex() + "-";
    return other;
}

bool FolderCache::usable() const {
    if (folder_.empty())
        return false;
    struct stat info {};
    if (::lstat(folder_.c_str(), &info) != 0)
        return errno == ENOENT && make_folder();
    return S_ISDIR(info.st_mode) && is_ours(info);
}

bool FolderCache::make_folder() const {
    ::mkdir(folder_.parent_path().c_str(), 0700); // ~/.cache; a missing home is not created
    return ::mkdir(folder_.c_str(), 0700) == 0 || errno == EEXIST;
}

fs::path FolderCache::path_of(const CopyName& name) const {
    return folder_ / (tenant_ + name.sha256.hex() + kExtension);
}

bool FolderCache::is_of(const CopyName& name, std::span<const std::byte> pages) {
    return is_size(name.bytes) && pages.size() == name.bytes && sha256(pages) == name.sha256;
}

UniqueFd FolderCache::open(const CopyName& name) const {
    const fs::path path = path_of(name);
    UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    const auto info = ours(file.get());
    if (!info || !is_size(name.bytes) || static_cast<std::uint64_t>(info->st_size) != name.bytes + sizeof(Trailer))
        return {};
    if (is_checked(file.get(), name.bytes, *info)) {
        note_use(file.get(), *info);
        return file;
    }
    have_large(file.get(), name.bytes);
    // Read, not mapped: a disk error is then an error code.
    tinykvm::IoBuffer pages(name.bytes);
    if (tinykvm::read_at(file.get(), 0, pages) != name.bytes || !is_of(name, pages))
        return {};
    if (const UniqueFd again(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW)); again)
        note_checked(again.get(), name.bytes);
    return file;
}

std::vector<UniqueFd> FolderCache::find_all(std::span<const CopyName> names) const {
    std::vector<UniqueFd> found(names.size());
    if (!usable())
        return found;
    for (std::size_t i = 0; i < names.size(); ++i)
        found[i] = open(names[i]);
    return found;
}

UniqueFd FolderCache::keep(const CopyName& name, std::span<const std::byte> pages) const {
    if (!usable())
        return {};
    if (auto there = open(name)) // all users should map the same file
        return there;
    return is_of(name, pages) ? publish(name, pages) : UniqueFd(); // snapshots are untrusted
}

UniqueFd FolderCache::publish(const CopyName& name, std::span<const std::byte> pages) const {
    try {
        if (!usable())
            return {};
        OutputFile file(path_of(name));
        file.write_at(0, pages);
        note_checked(file.fd(), name.bytes);
        file.publish(OutputFile::Durable::no);
        return open(name);
    } catch (const tinykvm::UserError&) { // the folder is gone or not writable
    } catch (const std::system_error&) {
    }
    return {};
}

std::optional<tinykvm::IoBuffer> FolderCache::read(const std::string& name) const {
    if (!usable())
        return std::nullopt;
    const UniqueFd file(::open((folder_ / (name + kOtherExtension)).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    const auto info = ours(file.get());
    if (!info || static_cast<std::uint64_t>(info->st_size) > kMaxOtherBytes)
        return std::nullopt;
    note_use(file.get(), *info);
    tinykvm::IoBuffer bytes(static_cast<std::size_t>(info->st_size));
    return tinykvm::read_at(file.get(), 0, bytes) == bytes.size() ? std::optional(std::move(bytes)) : std::nullopt;
}

void FolderCache::write(const std::string& name, std::span<const std::byte> bytes) const {
    try {
        if (!usable())
            return;
        OutputFile file(folder_ / (name + kOtherExtension));
        file.write_at(0, bytes);
        file.publish(OutputFile::Durable::no);
    } catch (const tinykvm::UserError&) {
    } catch (const std::system_error&) {
    }
}

void FolderCache::make_room() const {
    try {
        if (usable())
            remove_old();
    } catch (const std::exception&) { // another process removes files, or the folder
    }
}

void FolderCache::remove_old() const {
    struct Old {
        fs::path path;
        std::time_t used;
        std::uint64_t bytes;
    };
    std::uint64_t room = room_;
    struct statvfs file_system {};
    if (room == 0)
        room = ::statvfs(folder_.c_str(), &file_system) == 0
                   ? std::max<std::uint64_t>(kMinRoom, std::uint64_t{file_system.f_blocks} * file_system.f_frsize / 10)
                   : kMinRoom;
    std::vector<Old> copies;
    std::uint64_t sum = 0;
    std::error_code gone; // an entry removed by another process
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_, gone)) {
        const auto extension = entry.path().extension();
        // `.unpacked` and `.kept` belong to earlier versions and are no longer read. `.tmp` is left by a writer that
        // was killed.
        const bool stale = extension == ".unpacked" || extension == ".kept" ||
                           (extension == ".tmp" &&
                            entry.last_write_time(gone) < fs::file_time_type::clock::now() - std::chrono::hours(1));
        if ((!stale && extension != kExtension && extension != kOtherExtension) || !entry.is_regular_file(gone))
            continue;
        if (stale) {
            fs::remove(entry.path(), gone);
            continue;
        }
        struct stat info {};
        if (::lstat(entry.path().c_str(), &info) != 0)
            continue;
        sum += static_cast<std::uint64_t>(info.st_size);
        copies.push_back({entry.path(), info.st_atim.tv_sec, static_cast<std::uint64_t>(info.st_size)});
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
    for (const auto& folder :
         {from("CACHE_DIRECTORY", "unpacked"), from("XDG_CACHE_HOME", "kvmserver"), from("HOME", ".cache/kvmserver")})
        if (!folder.empty())
            return folder;
    return {};
}

} // namespace kvmserver
