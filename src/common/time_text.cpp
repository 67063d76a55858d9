#include "src/common/time_text.hpp"

#include <fmt/format.h>

#include <ctime>

namespace kvmserver {

namespace {

// Without the zone; "" when the year does not have four digits.
std::string seconds_text(std::int64_t ms) {
    const std::time_t seconds = ms / 1000;
    std::tm fields{};
    if (ms < 0 || !::gmtime_r(&seconds, &fields) || fields.tm_year > 9999 - 1900)
        return "";
    char line[32];
    return {line, std::strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &fields)};
}

} // namespace

std::string time_text(std::int64_t ms) {
    const std::string seconds = seconds_text(ms);
    return seconds.empty() ? "?" : seconds + "Z";
}

std::string time_text_with_ms(std::int64_t ms) {
    const std::string seconds = seconds_text(ms);
    return seconds.empty() ? "?" : fmt::format("{}.{:03}Z", seconds, ms % 1000);
}

} // namespace kvmserver
