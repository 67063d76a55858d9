// Memory files (memfds) of a machine's handles and mappings: private copies of the image's files, attributes, and the
// limit of their size.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tinykvm/linux/handles.hpp"

namespace tinykvm {

namespace {

std::uint64_t held_bytes(int fd) {
    struct stat info {};
    return ::fstat(fd, &info) == 0 ? static_cast<std::uint64_t>(info.st_blocks) * 512 : 0;
}

std::int64_t ns_of(const timespec& time) { return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }
timespec time_of(std::int64_t ns) {
    constexpr std::int64_t kSecond = 1'000'000'000;
    const std::int64_t below = ns % kSecond < 0 ? 1 : 0;
    return {ns / kSecond - below, ns % kSecond + below * kSecond};
}

UniqueFd copy_memfd(int from) {
    UniqueFd copy(::memfd_create("copy", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    struct stat info {};
    if (!copy || ::fstat(from, &info) != 0 || ::ftruncate(copy.get(), info.st_size) != 0)
        return UniqueFd();
    off_t at = 0;
    // Copy only data, not holes: a memfd may be large and sparse.
    while ((at = ::lseek(from, at, SEEK_DATA)) >= 0 && at < info.st_size) {
        const off_t end = ::lseek(from, at, SEEK_HOLE);
        if (::lseek(copy.get(), at, SEEK_SET) != at)
            return UniqueFd();
        while (at < end) {
            const ssize_t n = ::sendfile(copy.get(), from, &at, static_cast<std::size_t>(end - at));
            if (n <= 0)
                return UniqueFd();
        }
    }
    return set_attributes(copy.get(), attributes_of(from)) ? std::move(copy) : UniqueFd();
}

} // namespace

MemoryFileAttributes attributes_of(int memfd) {
    struct stat info {};
    MemoryFileAttributes out;
    if (::fstat(memfd, &info) != 0)
        return out;
    const int seals = ::fcntl(memfd, F_GET_SEALS); // fails for an O_TMPFILE file, which has no seals
    return {info.st_mode & 07777, seals < 0 ? 0 : static_cast<std::uint32_t>(seals), ns_of(info.st_atim),
            ns_of(info.st_mtim)};
}

bool set_attributes(int memfd, const MemoryFileAttributes& wanted) {
    const timespec times[2] = {time_of(wanted.atime_ns), time_of(wanted.mtime_ns)};
    // Reads through this descriptor must not change the access time.
    if (::fcntl(memfd, F_SETFL, O_NOATIME) != 0 || ::fchmod(memfd, wanted.mode & 0777) != 0 ||
        ::futimens(memfd, times) != 0)
        return false;
    const int seals = ::fcntl(memfd, F_GET_SEALS);
    return seals == static_cast<int>(wanted.seals) || ::fcntl(memfd, F_ADD_SEALS, static_cast<int>(wanted.seals)) == 0;
}

std::shared_ptr<const HostFile> HandleTable::own_memory_file(std::shared_ptr<const HostFile> file) {
    if (const auto known = own_memory_.find(file.get()); known != own_memory_.end())
        return known->second;
    if (!base_ || !base_->has(file))
        return file;
    if (!memfds_may_grow(held_bytes(file->fd()))) {
        errno = ENOSPC;
        return nullptr;
    }
    errno = 0;
    UniqueFd fd = copy_memfd(file->fd());
    if (!fd)
        return nullptr;
    auto copy = std::make_shared<const HostFile>(std::move(fd));
    own_memory_.emplace(file.get(), copy);
    for (std::size_t n = 0; n < slots_.size(); ++n)
        if (slots_[n].handle && slots_[n].handle->file == file) {
            auto handle = std::make_unique<Handle>(*slots_[n].handle);
            handle->file = copy;
            put(static_cast<std::int32_t>(n), std::move(handle));
        }
    return copy;
}

void HandleTable::note_mapped(const std::shared_ptr<const HostFile>& file) {
    std::erase_if(mapped_memory_, [](const auto& mapped) { return mapped.expired(); });
    if (std::none_of(mapped_memory_.begin(), mapped_memory_.end(),
                     [&](const auto& mapped) { return mapped.lock() == file; }))
        mapped_memory_.push_back(file);
}

std::uint64_t HandleTable::memfd_bytes() const {
    std::vector<std::shared_ptr<const HostFile>> files;
    for (const Slot& at : slots_)
        if (at.own && at.own->info.kind == HandleKind::memfd && at.own->file)
            files.push_back(at.own->file);
    for (const auto& mapped : mapped_memory_)
        if (auto file = mapped.lock())
            files.push_back(std::move(file));
    for (const auto& [base, own] : own_memory_)
        files.push_back(own);
    std::sort(files.begin(), files.end());
    files.erase(std::unique(files.begin(), files.end()), files.end());
    std::uint64_t total = 0;
    for (const auto& file : files)
        if (!base_ || !base_->has(file))
            total += held_bytes(file->fd());
    return total;
}

void HandleTable::set_memfd_limit(std::uint64_t bytes, std::function<bool(std::uint64_t)> room) {
    memfd_limit_ = bytes;
    memfd_room_ = std::move(room);
}

bool HandleTable::memfds_may_grow(std::uint64_t bytes) const {
    const std::uint64_t now = bytes <= memfd_limit_ ? memfd_bytes() : 0;
    return bytes <= memfd_limit_ && now <= memfd_limit_ - bytes && (!memfd_room_ || memfd_room_(now + bytes));
}

} // namespace tinykvm
