// W3C Trace Context (https://www.w3.org/TR/trace-context/): the headers `traceparent` and `tracestate` of a request.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "src/http/ids.hpp"
#include "src/http/request_head.hpp"

namespace kvmserver::http {

// A valid `traceparent`. Points into its text.
struct TraceParent {
    std::string_view trace_id; // 32 lower-case hexadecimal digits, not all 0
    std::string_view span_id;  // 16
    bool sampled = false;
};
std::optional<TraceParent> parse_traceparent(std::string_view text);

// A request's place in its trace.
struct Trace {
    bool sampled = false;        // whether its span is to be recorded
    std::string trace_id;        // of the client, or a new one
    std::string parent_id;       // the client's span; "" in a new trace
    std::string span_id;         // ours; "" if another program began the trace and does not want it recorded
    bool parent_refused = false; // the client sent headers that are invalid, so they must not reach the program
    std::string state;           // the client's tracestate if the span is to be recorded; several are one list

    std::string traceparent() const; // for the program; "": the client's own is to reach it
};

// `share` of the traces that begin here are sampled: 0 to 1. All others are as their client says.
Trace join_trace(const RequestHead& head, double share, Ids& ids);

} // namespace kvmserver::http
