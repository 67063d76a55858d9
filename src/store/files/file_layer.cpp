#include "src/store/files/file_layer.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace kvmserver::store {

namespace {

template <class Call>
auto without_eintr(const Call& call) {
    for (;;) {
        const auto result = call();
        if (result >= 0)
            return result;
        if (errno != EINTR)
            return static_cast<decltype(result)>(-errno);
    }
}

class RealFiles : public FileLayer {
public:
    int open(int at, const char* path, int flags, mode_t mode) override {
        return without_eintr([&] { return ::openat(at, path, flags | O_CLOEXEC, mode); });
    }
    ssize_t write(int fd, std::span<const std::byte> bytes, std::uint64_t offset) override {
        return without_eintr([&] { return ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset)); });
    }
    int fsync(int fd) override {
        return without_eintr([&] { return ::fsync(fd); });
    }
    int rename(int at, const char* from, const char* to) override {
        return without_eintr([&] { return ::renameat(at, from, at, to); });
    }
    int link(int at, const char* from, const char* to) override {
        return without_eintr([&] { return ::linkat(at, from, at, to, 0); });
    }
    int unlink(int at, const char* path) override {
        return without_eintr([&] { return ::unlinkat(at, path, 0); });
    }
    int mkdir(int at, const char* path, mode_t mode) override {
        return without_eintr([&] { return ::mkdirat(at, path, mode); });
    }
    int rmdir(int at, const char* path) override {
        return without_eintr([&] { return ::unlinkat(at, path, AT_REMOVEDIR); });
    }
};

} // namespace

std::shared_ptr<FileLayer> real_files() {
    static const auto files = std::make_shared<RealFiles>();
    return files;
}

} // namespace kvmserver::store
