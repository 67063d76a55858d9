// What is recorded of a traced request, as plain values. Its spans are made later, by the exporter's thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace kvmserver::tracing {

// In nanoseconds since 1970.
struct Period {
    std::int64_t begin = 0, end = 0;
};

struct RequestTrace {
    std::string trace_id, span_id, parent_id, state; // as in http::Trace
    std::string method, host, path, route, scheme, client, user_agent, request_id, outcome;
    std::string function; // "": no function got it
    std::uint64_t version = 0;
    unsigned status = 0; // 0: the client got none
    int minor_version = 1;
    bool cold = false;
    bool failed = false; // by the operator's or the function's fault
    Period request;
    std::optional<Period> queue, restore, execute, reset; // its phases
    // Of the function's process, unchecked:
    std::uint64_t cpu_us = 0, dirty_pages = 0;

    std::size_t spans() const { return 1u + !!queue + !!restore + !!execute + !!reset; }
};

} // namespace kvmserver::tracing
