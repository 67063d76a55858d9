#include "src/setup/warmup_request.hpp"

#include <fmt/format.h>
#include <strings.h>

#include <string_view>

namespace kvmserver {
namespace {

bool has_field(std::string_view lines, std::string_view name) {
    while (!lines.empty()) {
        if (lines.size() > name.size() && lines[name.size()] == ':' &&
            ::strncasecmp(lines.data(), name.data(), name.size()) == 0)
            return true;
        lines.remove_prefix(lines.find('\n') + 1);
    }
    return false;
}

} // namespace

std::string WarmupRequest::wire() const {
    std::string out = fmt::format("{} {} HTTP/1.1\r\n", method, target);
    if (!has_field(fields, "Host"))
        out += "Host: localhost\r\n";
    if (!has_field(fields, "User-Agent"))
        out += "User-Agent: kvmserver-warmup\r\n";
    out += fields;
    if (!body.empty() || method == "POST" || method == "PUT" || method == "PATCH")
        out += fmt::format("Content-Length: {}\r\n", body.size());
    return out + "Connection: close\r\n\r\n" + body;
}

} // namespace kvmserver
