// A collector that takes OTLP/JSON over HTTP.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/tracing/exporter.hpp"

namespace kvmserver::tracing {

using Headers = std::vector<std::pair<std::string, std::string>>;

// Where POSTs go: `text`, and /v1/traces if that has no path. Throws UserError (usage).
std::string traces_url(const std::string& text);

// A file of lines `NAME: VALUE`; lines that begin with # and empty ones are ignored. Throws UserError.
Headers read_headers(const std::string& file);

// Sends to `url` by libcurl, over one connection. Throws UserError: this host has no libcurl, or the headers would
// travel to another host in the clear.
Send send_to(const std::string& url, const Headers& headers);

// What a reply means. `retry_after` is that header, or "".
Sent understand(unsigned status, std::string_view body, std::string_view retry_after);

} // namespace kvmserver::tracing
