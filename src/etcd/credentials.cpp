#include "src/etcd/credentials.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/read.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::etcd {
namespace {

constexpr off_t kLongestFile = 4096;

// They become parts of JSON.
bool is_printable(std::string_view text) {
    return std::ranges::all_of(text, [](unsigned char c) { return c >= 0x20 && c < 0x7f; });
}

} // namespace

Credentials read_credentials(const std::string& file) {
    const auto wrong = [&](const std::string& why) {
        return tinykvm::UserError(tinykvm::ExitCode::usage, fmt::format("etcd's credentials {}: {}", file, why));
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
    if (facts.st_size > kLongestFile)
        throw wrong(fmt::format("it is longer than {} bytes: write one line USER:PASSWORD", kLongestFile));
    const std::string text = tinykvm::read_text(fd.get(), file);
    std::string_view line = text;
    for (const char c : {'\n', '\r'})
        if (line.ends_with(c))
            line.remove_suffix(1);
    const auto colon = line.find(':');
    if (colon == line.npos || colon == 0 || colon + 1 == line.size())
        throw wrong("write one line USER:PASSWORD");
    if (!is_printable(line))
        throw wrong("write one line USER:PASSWORD, of printable ASCII characters");
    return {std::string(line.substr(0, colon)), std::string(line.substr(colon + 1))};
}

} // namespace kvmserver::etcd
