#include "src/ops/when.hpp"

#include <fmt/format.h>

#include <charconv>
#include <ctime>
#include <string>

#include "src/store/errors.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::ops {

std::int64_t time_from(std::string_view text, std::int64_t now) {
    std::int64_t count = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, count);
    if (error == std::errc{} && rest + 1 == end && count >= 0 && count < 100'000'000) {
        switch (*rest) {
        case 's': return now - count * 1000;
        case 'm': return now - count * 60'000;
        case 'h': return now - count * 3'600'000;
        case 'd': return now - count * 86'400'000;
        default: break;
        }
    }
    std::tm fields{};
    const std::string given(text);
    const char* const parsed = ::strptime(given.c_str(), "%Y-%m-%dT%H:%M:%SZ", &fields);
    if (!parsed || *parsed != '\0')
        throw store::BadValue(
            fmt::format("'{}' is not a time: write 10m, 2h, 3d or 2026-11-21T03:00:09Z", tinykvm::brief(text)));
    return static_cast<std::int64_t>(::timegm(&fields)) * 1000;
}

} // namespace kvmserver::ops
