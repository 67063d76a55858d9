// Times as RFC 3339 text, in UTC.
#pragma once

#include <cstdint>
#include <string>

namespace kvmserver {

// `ms` is milliseconds since 1970. "2026-11-21T03:00:09Z"; "?" when the year does not have four digits.
std::string time_text(std::int64_t ms);
std::string time_text_with_ms(std::int64_t ms); // "2026-11-21T03:00:09.042Z"

} // namespace kvmserver
