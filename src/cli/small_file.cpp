#include "src/cli/small_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/read.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::cli {

using tinykvm::ExitCode;
using tinykvm::UserError;

std::string read_small_file(const std::string& path, std::uint64_t most, const std::string& what) {
    const tinykvm::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat facts {};
    if (!file || ::fstat(file.get(), &facts) != 0)
        throw UserError(errno == ENOENT   ? ExitCode::not_found
                        : errno == EACCES ? ExitCode::not_permitted
                                          : ExitCode::failure,
                        fmt::format("{}: {}", path, std::strerror(errno)));
    if (!S_ISREG(facts.st_mode) || static_cast<std::uint64_t>(facts.st_size) > most)
        throw UserError(ExitCode::usage,
                        fmt::format("{}: is no file of at most {} KiB with {}", path, most >> 10, what));
    return tinykvm::read_text(file.get(), path);
}

} // namespace kvmserver::cli
