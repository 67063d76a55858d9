#include "src/common/private_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/read.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver {

std::string read_private_file(const std::string& what, const std::string& file) {
    const auto wrong = [&](const std::string& why) {
        return tinykvm::UserError(tinykvm::ExitCode::usage, what + " " + file + ": " + why);
    };
    // O_NONBLOCK: a pipe without a writer is refused, not waited for.
    const tinykvm::UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat facts {};
    if (!fd || ::fstat(fd.get(), &facts) != 0)
        throw wrong(std::strerror(errno));
    if (!S_ISREG(facts.st_mode))
        throw wrong("it is no file");
    if ((facts.st_mode & 007) != 0)
        throw wrong("everyone may read it: chmod o= " + file);
    if (facts.st_size > static_cast<off_t>(kMaxPrivateFile))
        throw wrong("it is longer than " + std::to_string(kMaxPrivateFile) + " bytes");
    return tinykvm::read_text(fd.get(), what + " " + file);
}

} // namespace kvmserver
