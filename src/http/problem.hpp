// The error document that clients get (RFC 9457), and a complete reply with it.
#pragma once
#include <string>
#include <string_view>

#include "src/http/fault.hpp"
#include "src/http/upstream.hpp"

namespace kvmserver::http {

std::string_view status_title(unsigned status);
Problem problem_of(const Fault& fault, request::Outcome outcome);
// A complete reply. For HEAD it has no document. `close` adds Connection: close.
std::string problem_reply(const Problem& problem, std::string_view request_id, bool close, bool head_request);

} // namespace kvmserver::http
