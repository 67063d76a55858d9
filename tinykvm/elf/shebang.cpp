#include "tinykvm/elf/shebang.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/text.hpp"

namespace tinykvm {
namespace {

constexpr std::size_t kLineMax = 256; // BINPRM_BUF_SIZE
constexpr std::string_view kBlank = " \t";

} // namespace

std::optional<Shebang> read_shebang(const ByteSource& source, const std::string& name) {
    std::array<char, kLineMax> buffer;
    const std::size_t have = std::min<std::uint64_t>(source.size(), buffer.size());
    if (!source.read(0, std::as_writable_bytes(std::span(buffer.data(), have))))
        return std::nullopt;
    std::string_view line(buffer.data(), have);
    if (!line.starts_with("#!"))
        return std::nullopt;
    line.remove_prefix(2);
    const std::size_t end = line.find('\n');
    const bool whole = end != line.npos || have < buffer.size();
    line = line.substr(0, end);
    line = line.substr(0, line.find('\0'));
    line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
    const std::size_t name_end = line.find_first_of(kBlank);
    Shebang result;
    result.interpreter = line.substr(0, name_end);
    if (result.interpreter.empty())
        throw UserError(ExitCode::failure, name + ": is a script that names no interpreter after #!");
    if (result.interpreter.back() == '\r')
        throw UserError(ExitCode::failure, name + ": is a script with Windows line ends; its interpreter \"" +
                                               brief(result.interpreter) + "\" does not exist");
    if (name_end == line.npos) {
        if (!whole)
            throw UserError(ExitCode::failure, name + ": is a script whose interpreter's path is too long");
        return result;
    }
    // As in Linux, an argument that is too long is truncated.
    line.remove_prefix(name_end);
    line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
    result.argument = line.substr(0, line.find_last_not_of(kBlank) + 1);
    return result;
}

std::optional<Shebang> read_shebang(std::span<const std::byte> bytes, const std::string& name) {
    return read_shebang(SpanSource(bytes), name);
}

} // namespace tinykvm
