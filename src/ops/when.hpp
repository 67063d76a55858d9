// Parses points in time as people write them.
#pragma once
#include <cstdint>
#include <string_view>

namespace kvmserver::ops {

// "90s", "10m", "2h", "3d" before `now`, or "2026-11-21T03:00:09Z". Times are ms since 1970. Throws BadValue.
std::int64_t time_from(std::string_view text, std::int64_t now);

} // namespace kvmserver::ops
