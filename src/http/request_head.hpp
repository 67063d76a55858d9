// Parses the head of a request strictly: anything that two parsers could understand differently is refused.
#pragma once
#include <string_view>
#include <vector>

#include "src/http/fields.hpp"
#include "src/http/head_end.hpp"

namespace kvmserver::http {

// Points into the bytes that it was parsed from.
struct RequestHead {
    std::string_view request_line; // with its CRLF
    std::string_view method;
    std::string_view target; // as it was sent
    std::string_view path;   // of the target: from the first '/', with the query
    std::string_view host;   // of an absolute target or of Host; may be ""
    int minor_version = 1;
    std::vector<Field> fields;
    Framing body;
    bool keep_alive = true;
    bool upgrade = false; // it asks for another protocol (not h2c) and has no body
    bool expects_continue = false;
    std::string_view traceparent;

    std::string_view find(std::string_view name) const; // the first of that name, or ""
};

// `bytes` is a complete head as found by HeadEnd.
Fault parse_request_head(std::string_view bytes, const HeadLimits& limits, RequestHead& head);

} // namespace kvmserver::http
