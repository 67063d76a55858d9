#include "src/snapshot/output_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver {

using tinykvm::ExitCode;
using tinykvm::UserError;

OutputFile::OutputFile(std::filesystem::path path, Naming naming)
    : path_(std::move(path)), folder_(path_.parent_path()) {
    if (folder_.empty())
        folder_ = ".";
    struct stat there {};
    if (::stat(path_.c_str(), &there) == 0 && !S_ISREG(there.st_mode))
        throw UserError(ExitCode::usage,
                        fmt::format("{}: is {}, not a place for a snapshot", tinykvm::printable(path_.native()),
                                    S_ISDIR(there.st_mode) ? "a folder" : "not a regular file"));
    folder_fd_.reset(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder_fd_)
        fail("open the folder of");
    if (naming == Naming::hidden || !open_nameless())
        open_hidden();
}

OutputFile::~OutputFile() {
    if (!hidden_.empty())
        ::unlinkat(folder_fd_.get(), hidden_.c_str(), 0);
}

void OutputFile::fail(const char* operation) const {
    const int error = errno;
    const std::string what = fmt::format("{} {}", operation, tinykvm::printable(path_.native()));
    if (error == ENOENT || error == ENOTDIR)
        throw UserError(ExitCode::not_found, fmt::format("{}: no such folder", what));
    if (error == EACCES || error == EPERM || error == EROFS)
        throw UserError(ExitCode::not_permitted, fmt::format("{}: {}", what, std::strerror(error)));
    throw tinykvm::HostError(error, what);
}

bool OutputFile::open_nameless() {
    // publish() links through /proc: linkat(AT_EMPTY_PATH) needs a capability.
    if (::access("/proc/self/fd", X_OK) != 0)
        return false;
    fd_.reset(::openat(folder_fd_.get(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, kMode));
    // Kernels and file systems without O_TMPFILE return ENOENT or EISDIR (open(2)).
    if (!fd_ && errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL)
        fail("write");
    return static_cast<bool>(fd_);
}

std::string OutputFile::hidden_name() const {
    static std::atomic<unsigned> next{0};
    return fmt::format(".snapshot-{}-{}.tmp", ::getpid(), next++);
}

void OutputFile::open_hidden() {
    do {
        hidden_ = hidden_name();
        fd_.reset(::openat(folder_fd_.get(), hidden_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, kMode));
    } while (!fd_ && errno == EEXIST);
    if (!fd_) {
        hidden_.clear();
        fail("write");
    }
}

void OutputFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t n = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = ENOSPC;
        if (n <= 0)
            fail("write");
        offset += static_cast<std::uint64_t>(n);
        bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
}

void OutputFile::publish(Durable durable) {
    if (durable == Durable::yes && ::fsync(fd_.get()) != 0)
        fail("fsync");
    if (hidden_.empty()) { // linkat does not replace a file, so link to a hidden name and rename
        const std::string self = fmt::format("/proc/self/fd/{}", fd_.get());
        std::string name = hidden_name();
        while (::linkat(AT_FDCWD, self.c_str(), folder_fd_.get(), name.c_str(), AT_SYMLINK_FOLLOW) != 0) {
            if (errno != EEXIST)
                fail("link");
            name = hidden_name();
        }
        hidden_ = std::move(name);
    }
    if (::renameat(folder_fd_.get(), hidden_.c_str(), folder_fd_.get(), path_.filename().c_str()) != 0)
        fail("rename to");
    hidden_.clear();
    if (durable == Durable::yes && ::fsync(folder_fd_.get()) != 0 && errno != EINVAL)
        fail("fsync the folder of");
}

} // namespace kvmserver
