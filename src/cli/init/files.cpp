#include "src/cli/init/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::cli::init {
namespace {

namespace fs = std::filesystem;
using tinykvm::ExitCode;
using tinykvm::UserError;

[[noreturn]] void fail(const fs::path& path, int error) {
    const bool denied = error == EACCES || error == EPERM || error == EROFS;
    throw UserError(denied ? ExitCode::not_permitted : ExitCode::failure,
                    fmt::format("cannot make {}: {}", path.string(), std::strerror(error)));
}

void make_folder(const fs::path& folder) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (fs::is_directory(folder))
        return;
    if (error == std::errc::not_a_directory || fs::exists(folder))
        throw UserError(ExitCode::conflict, fmt::format("{} is not a folder", folder.string()));
    fail(folder, error.value());
}

void write_new(const fs::path& path, std::string_view text) {
    const tinykvm::UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!fd)
        fail(path, errno);
    while (!text.empty()) {
        const ssize_t count = ::write(fd.get(), text.data(), text.size());
        if (count < 0 && errno != EINTR) {
            const int error = errno;
            ::unlink(path.c_str());
            fail(path, error);
        }
        text.remove_prefix(count > 0 ? static_cast<std::size_t>(count) : 0);
    }
}

} // namespace

void create_files(const fs::path& folder, const std::vector<File>& files) {
    for (const File& file : files) {
        struct stat there;
        if (const fs::path path = folder / file.path; ::lstat(path.c_str(), &there) == 0)
            throw UserError(ExitCode::conflict, fmt::format("{} is there already; nothing was changed", path.string()));
    }
    std::vector<fs::path> made;
    try {
        make_folder(folder);
        for (const File& file : files) {
            const fs::path path = folder / file.path;
            make_folder(path.parent_path());
            write_new(path, file.text);
            made.push_back(path);
        }
    } catch (...) {
        std::error_code error;
        for (const fs::path& path : made)
            fs::remove(path, error);
        throw;
    }
}

} // namespace kvmserver::cli::init
