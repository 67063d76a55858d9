#include "src/etcd/credentials.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "src/common/private_file.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::etcd {
namespace {

constexpr const char* kWhat = "etcd's credentials";
constexpr std::size_t kLongestLine = 4096;

// They become parts of JSON.
bool is_printable(std::string_view text) {
    return std::ranges::all_of(text, [](unsigned char c) { return c >= 0x20 && c < 0x7f; });
}

} // namespace

Credentials read_credentials(const std::string& file) {
    const auto wrong = [&](const std::string& why) {
        return tinykvm::UserError(tinykvm::ExitCode::usage, fmt::format("{} {}: {}", kWhat, file, why));
    };
    const std::string text = read_private_file(kWhat, file);
    std::string_view line = text;
    for (const char c : {'\n', '\r'})
        if (line.ends_with(c))
            line.remove_suffix(1);
    if (line.size() > kLongestLine)
        throw wrong(fmt::format("its line is longer than {} bytes: write USER:PASSWORD", kLongestLine));
    const auto colon = line.find(':');
    if (colon == line.npos || colon == 0 || colon + 1 == line.size())
        throw wrong("write one line USER:PASSWORD");
    if (!is_printable(line))
        throw wrong("write one line USER:PASSWORD, of printable ASCII characters");
    return {std::string(line.substr(0, colon)), std::string(line.substr(colon + 1))};
}

} // namespace kvmserver::etcd
