// Two clocks as plain numbers.
#pragma once

#include <cstdint>

namespace kvmserver {

std::int64_t now_ms();  // the wall clock: milliseconds since 1970
std::uint64_t now_ns(); // std::chrono::steady_clock: for durations and deadlines

} // namespace kvmserver
