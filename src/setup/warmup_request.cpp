#include "src/setup/warmup_request.hpp"

#include <fmt/format.h>
#include <strings.h>

#include <array>
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

struct Client {
    bool accepts = false, chooses = false, navigates = false; // what it says about the reply, and as a browser
    bool forwarded = false;                                   // by the daemon, or another proxy
};
constexpr std::array<Client, kWarmupClients> kClients{{
    {.accepts = true, .forwarded = true}, // such as curl
    {},                                   // the least that there is
    {.accepts = true, .chooses = true, .navigates = true, .forwarded = true},
    {.accepts = true},
    {.accepts = true, .chooses = true, .navigates = true},
    {.accepts = true, .chooses = true, .forwarded = true}, // such as fetch() of another program
    {.forwarded = true},
}};

std::string fields_of(const Client& client) {
    std::string out;
    if (client.accepts)
        out += client.navigates ? "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n"
                                : "Accept: */*\r\n";
    if (client.chooses) // the encoding that changes no reply
        out += "Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: identity\r\n";
    if (client.navigates)
        out += "Upgrade-Insecure-Requests: 1\r\nSec-Fetch-Dest: document\r\nSec-Fetch-Mode: navigate\r\n"
               "Sec-Fetch-Site: none\r\nSec-Fetch-User: ?1\r\nPriority: u=0, i\r\n";
    // Through TLS: a program that demands it answers instead of redirecting. The address is one for documents (RFC
    // 5737).
    if (client.forwarded)
        out += "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: localhost\r\n";
    return out;
}

} // namespace

std::string WarmupRequest::wire(unsigned client) const {
    std::string out = fmt::format("{} {} HTTP/1.1\r\n", method, target);
    if (!has_field(fields, "Host"))
        out += "Host: localhost\r\n";
    if (!has_field(fields, "User-Agent"))
        out += "User-Agent: kvmserver-warmup\r\n";
    out += fields.empty() ? fields_of(kClients.at(client)) : fields;
    if (!body.empty() || method == "POST" || method == "PUT" || method == "PATCH")
        out += fmt::format("Content-Length: {}\r\n", body.size());
    return out + "Connection: close\r\n\r\n" + body;
}

} // namespace kvmserver
