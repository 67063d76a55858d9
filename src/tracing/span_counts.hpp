// What became of spans.
#pragma once
#include <cstdint>

namespace kvmserver::tracing {

struct SpanCounts {
    std::uint64_t sent = 0; // and accepted
    std::uint64_t dropped = 0;
};

} // namespace kvmserver::tracing
