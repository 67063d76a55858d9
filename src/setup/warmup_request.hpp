// A request that warms up a program.
#pragma once
#include <string>

namespace kvmserver {

struct WarmupRequest {
    std::string method = "GET";
    std::string target = "/";
    std::string fields; // header lines, each ended by CR LF, beside those that wire() adds
    std::string body;

    std::string name() const { return method + " " + target; } // for messages
    // As it is sent. Adds Host and User-Agent unless `fields` has them, the body's length, and the end of the
    // connection.
    std::string wire() const;
    bool operator==(const WarmupRequest&) const = default;
};

} // namespace kvmserver
