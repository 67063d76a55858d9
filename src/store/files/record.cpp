#include "src/store/files/record.hpp"

#include <fmt/format.h>

#include "src/common/digest.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::store {

namespace {
constexpr std::string_view kMagic = "kvmserver-record ";
}

std::string seal_record(std::string_view kind, std::string_view json) {
    return fmt::format("{}1 {} {}\n{}", kMagic, kind, sha256(json).hex(), json);
}

std::string_view open_record(std::string_view kind, std::string_view file) {
    if (!file.starts_with(kMagic))
        throw RecordError("is not a record");
    const auto end = file.find('\n');
    if (end == file.npos || end > 200)
        throw RecordError("is cut short");
    const std::string_view json = file.substr(end + 1);
    const std::string expected = fmt::format("{}1 {} {}", kMagic, kind, sha256(json).hex());
    if (file.substr(0, end) == expected)
        return json;
    if (!file.starts_with(fmt::format("{}1 ", kMagic)))
        throw RecordError("is of another version: \"" + tinykvm::brief(file.substr(0, end)) + "\"");
    if (!file.starts_with(fmt::format("{}1 {} ", kMagic, kind)))
        throw RecordError(fmt::format("is not a record of a {}", kind));
    throw RecordError("is altered or cut short: its checksum is wrong");
}

} // namespace kvmserver::store
