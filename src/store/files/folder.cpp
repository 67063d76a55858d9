#include "src/store/files/folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "src/common/digest.hpp"
#include "src/common/random_hex.hpp"
#include "src/store/errors.hpp"
#include "tinykvm/base/read.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::store {

using tinykvm::UniqueFd;

namespace {

constexpr mode_t kFolderMode = 0700, kFileMode = 0600;

// Failures that the user can mend are UserErrors.
[[noreturn]] void fail_open(int error, const std::string& path) {
    if (error == ENOENT || error == ENOTDIR)
        throw UserError(ExitCode::not_found, fmt::format("store {}: there is no such folder", path));
    if (error == EACCES || error == EPERM || error == EROFS)
        throw UserError(ExitCode::not_permitted,
                        fmt::format("store {}: {}: run as its owner, or choose another place with --store", path,
                                    std::strerror(error)));
    throw HostError(error, "open store " + path);
}

void sync_named(FileLayer& layer, int at, const char* name, const std::string& shown) {
    const int fd = layer.open(at, name, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        throw HostError(-fd, "open " + shown);
    const UniqueFd owner(fd);
    if (const int result = layer.fsync(fd); result < 0)
        throw HostError(-result, "fsync " + shown);
}

} // namespace

Folder::Folder(std::filesystem::path path, std::shared_ptr<FileLayer> layer)
    : path_(std::move(path)), layer_(std::move(layer)) {
    fd_.reset(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd_)
        fail_open(errno, tinykvm::brief(path_.native()));
}

void Folder::make(const std::filesystem::path& path, FileLayer& layer) {
    // Folders above the store follow the user's umask; the store's own folders are private.
    std::error_code error;
    const auto above = std::filesystem::absolute(path).lexically_normal();
    const auto parent = above.has_filename() ? above.parent_path() : above.parent_path().parent_path();
    std::filesystem::create_directories(parent, error);
    if (error)
        fail_open(error.value(), tinykvm::brief(path.native()));
    const int made = layer.mkdir(AT_FDCWD, above.c_str(), kFolderMode);
    if (made < 0 && made != -EEXIST)
        fail_open(-made, tinykvm::brief(path.native()));
    if (made == 0)
        sync_named(layer, AT_FDCWD, parent.c_str(), tinykvm::brief(parent.native()));
    const UniqueFd at(::open(above.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!at)
        fail_open(errno, tinykvm::brief(path.native()));
    bool changed = false;
    for (const char* name : {kChunks, kSnapshots, kFunctions, kUploads, kTmp, kLocks, kSavedStates}) {
        const int result = layer.mkdir(at.get(), name, kFolderMode);
        if (result < 0 && result != -EEXIST)
            fail_open(-result, tinykvm::brief((path / name).native()));
        changed |= result == 0;
    }
    if (changed)
        sync_named(layer, at.get(), ".", tinykvm::brief(path.native()));
}

std::string Folder::full(std::string_view relative) const { return tinykvm::brief(path_of(relative)); }

std::string Folder::path_of(std::string_view relative) const { return (path_ / relative).native(); }

bool Folder::make_folder(const std::string& path) {
    const int result = layer_->mkdir(fd(), path.c_str(), kFolderMode);
    if (result < 0 && result != -EEXIST)
        throw HostError(-result, "mkdir " + full(path));
    return result == 0;
}

UniqueFd Folder::create(const std::string& path) { return open_write(path, O_CREAT | O_EXCL); }

UniqueFd Folder::open_write(const std::string& path, int flags) {
    const int file = layer_->open(fd(), path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | flags, kFileMode);
    if (file < 0)
        throw HostError(-file, "open " + full(path));
    return UniqueFd(file);
}

void Folder::write(int file, const std::string& path, std::span<const std::byte> bytes, std::uint64_t offset) {
    while (!bytes.empty()) {
        const ssize_t n = layer_->write(file, bytes, offset);
        if (n <= 0)
            throw HostError(n == 0 ? ENOSPC : static_cast<int>(-n), "write " + full(path));
        bytes = bytes.subspan(static_cast<std::size_t>(n));
        offset += static_cast<std::uint64_t>(n);
    }
}

void Folder::sync(int file, const std::string& path) {
    if (const int result = layer_->fsync(file); result < 0)
        throw HostError(-result, "fsync " + full(path));
}

void Folder::sync_folder(const std::string& path) { sync_named(*layer_, fd(), path.c_str(), full(path)); }

void Folder::rename(const std::string& from, const std::string& to) {
    if (const int result = layer_->rename(fd(), from.c_str(), to.c_str()); result < 0)
        throw HostError(-result, "rename to " + full(to));
}

bool Folder::link(const std::string& from, const std::string& to) {
    return layer_->link(fd(), from.c_str(), to.c_str()) == 0;
}

bool Folder::remove(const std::string& path) {
    const int result = layer_->unlink(fd(), path.c_str());
    if (result < 0 && result != -ENOENT && result != -ENOTDIR)
        throw HostError(-result, "remove " + full(path));
    return result == 0;
}

void Folder::remove_tree(const std::string& path) {
    for (const std::string& name : list(path))
        remove(fmt::format("{}/{}", path, name));
    const int result = layer_->rmdir(fd(), path.c_str());
    if (result == -ENOTDIR)
        remove(path);
    else if (result < 0 && result != -ENOENT)
        throw HostError(-result, "remove " + full(path));
}

void Folder::put(const std::string& path, std::string_view text) {
    const std::string name = std::string(kTmp) + "/put-" + random_hex(8);
    try {
        const UniqueFd file = create(name);
        write(file.get(), path, std::as_bytes(std::span(text)), 0);
        sync(file.get(), path);
        rename(name, path);
    } catch (...) {
        layer_->unlink(fd(), name.c_str()); // if this fails, gc removes the file
        throw;
    }
}

UniqueFd Folder::open_read(const std::string& path) const {
    UniqueFd file(::openat(fd(), path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!file) {
        if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == ENXIO)
            return {};
        throw HostError(errno, "open " + full(path));
    }
    struct stat info {};
    if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode))
        return {};
    return file;
}

std::optional<std::uint64_t> Folder::size_of(const std::string& path) const {
    struct stat info {};
    if (::fstatat(fd(), path.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT || errno == ENOTDIR)
            return std::nullopt;
        throw HostError(errno, "stat " + full(path));
    }
    if (!S_ISREG(info.st_mode))
        return std::nullopt;
    return static_cast<std::uint64_t>(info.st_size);
}

std::optional<std::string> Folder::read(const std::string& path, std::uint64_t max_bytes) const {
    const UniqueFd file = open_read(path);
    if (!file)
        return std::nullopt;
    struct stat info {};
    if (::fstat(file.get(), &info) != 0 || static_cast<std::uint64_t>(info.st_size) > max_bytes)
        throw HostError(EFBIG, "read " + full(path));
    std::string text(static_cast<std::size_t>(info.st_size), '\0');
    text.resize(tinykvm::read_at(file.get(), 0, std::as_writable_bytes(std::span(text)), "read " + full(path)));
    return text;
}

std::vector<std::string> Folder::list(const std::string& path) const {
    std::vector<std::string> names;
    const int folder = ::openat(fd(), path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (folder < 0) {
        if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)
            return names;
        throw HostError(errno, "open " + full(path));
    }
    const std::unique_ptr<DIR, int (*)(DIR*)> entries(::fdopendir(folder), ::closedir);
    if (!entries) {
        const UniqueFd owner(folder);
        throw HostError(ENOMEM, "read " + full(path));
    }
    errno = 0;
    while (const dirent* entry = ::readdir(entries.get())) {
        const std::string_view name = entry->d_name;
        if (name != "." && name != "..")
            names.emplace_back(name);
        errno = 0;
    }
    if (errno != 0)
        throw HostError(errno, "read " + full(path));
    std::sort(names.begin(), names.end());
    return names;
}

} // namespace kvmserver::store
