// Requests as spans in OTLP/JSON (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding), with attributes by
// OpenTelemetry's semantic conventions for HTTP servers.
#pragma once
#include <span>
#include <string>

#include "src/http/ids.hpp"
#include "src/tracing/request_trace.hpp"

namespace kvmserver::tracing {

// Who reports the spans.
struct Resource {
    std::string version;  // of kvmserver
    std::string instance; // differs for each daemon
    std::string host;
};

// The body of a POST to /v1/traces. `ids` makes ids for the spans of phases.
std::string otlp_json(const Resource& resource, std::span<const RequestTrace> requests, http::Ids& ids);

} // namespace kvmserver::tracing
