// From what the daemon knows of a request to its trace.
#pragma once
#include <memory>

#include "src/daemon/request.hpp"
#include "src/http/observer.hpp"
#include "src/tracing/request_trace.hpp"

namespace kvmserver::daemon {

// Call when the reply has ended. Null if the request is not sampled. `request` is null if no function got it.
std::unique_ptr<tracing::RequestTrace> trace_of(const http::RequestRecord& record, const Request* request);

// Adds what is known once the machine is clean. Figures of the function's process are limited to what the daemon itself
// measured, since that process may be compromised.
void complete(tracing::RequestTrace& trace, const Request& request);

} // namespace kvmserver::daemon
