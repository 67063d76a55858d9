// A request that warms up a program.
#pragma once
#include <string>

namespace kvmserver {

// Requests that name no headers are sent as by several clients, in turn. A compiler such as V8 specialises code for the
// headers that it has seen, and throws it away at others. After a warm-up by one client only, that would happen in
// every invocation by another one. V8 stops specialising after four.
constexpr unsigned kWarmupClients = 7;

struct WarmupRequest {
    std::string method = "GET";
    std::string target = "/";
    std::string fields; // header lines, each ended by CR LF, beside those that wire() adds
    std::string body;

    std::string name() const { return method + " " + target; } // for messages
    // As it is sent. Adds Host and User-Agent unless `fields` has them, the headers of client number `client` if
    // `fields` is empty, the body's length, and the end of the connection. Client 0 is as the daemon, or `--http`,
    // passes on the request of a command-line client.
    std::string wire(unsigned client) const;
    bool operator==(const WarmupRequest&) const = default;
};

} // namespace kvmserver
