#include "src/store/files/lock.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "src/store/errors.hpp"

namespace kvmserver::store {

namespace {

// False if the lock is taken (only with LOCK_NB).
bool lock(int fd, int how, const std::string& path) {
    while (::flock(fd, how) != 0) {
        if (errno == EWOULDBLOCK)
            return false;
        if (errno != EINTR)
            throw HostError(errno, "lock " + path);
    }
    return true;
}

} // namespace

FileLock FileLock::shared(Folder& folder, const std::string& path) {
    FileLock held(folder.open_write(path, O_CREAT));
    lock(held.fd(), LOCK_SH, folder.full(path));
    return held;
}

FileLock FileLock::exclusive(Folder& folder, const std::string& path) {
    FileLock held(folder.open_write(path, O_CREAT));
    lock(held.fd(), LOCK_EX, folder.full(path));
    return held;
}

std::optional<FileLock> FileLock::try_exclusive(Folder& folder, const std::string& path) {
    FileLock held(folder.open_write(path, O_CREAT));
    if (!lock(held.fd(), LOCK_EX | LOCK_NB, folder.full(path)))
        return std::nullopt;
    return held;
}

std::optional<FileLock> FileLock::exclusive_within(Folder& folder, const std::string& path, int milliseconds) {
    using namespace std::chrono;
    const auto end = steady_clock::now() + std::chrono::milliseconds(milliseconds);
    for (;;) {
        if (auto held = try_exclusive(folder, path))
            return held;
        if (steady_clock::now() >= end)
            return std::nullopt;
        std::this_thread::sleep_for(5ms);
    }
}

bool FileLock::nobody_holds(const Folder& folder, const std::string& path) {
    FileLock tried(folder.open_read(path));
    return tried.fd_ && lock(tried.fd(), LOCK_EX | LOCK_NB, folder.full(path));
}

FileLock::~FileLock() {
    if (fd_)
        ::flock(fd_.get(), LOCK_UN);
}

} // namespace kvmserver::store
