// What the front can be told, as plain values.
#pragma once
#include <chrono>
#include <cstdint>

#include "src/http/head_end.hpp"

namespace kvmserver::http {

struct Options {
    using Time = std::chrono::milliseconds; // 0: no limit
    unsigned threads = 1;
    HeadLimits limits;
    std::uint64_t max_body = 0; // bytes of a request's body; 0: no limit

    Time header_timeout{10'000};    // from a request's first byte (or a TLS connection's start) to the end of its head
    Time idle_timeout{75'000};      // between requests
    Time connect_timeout{30'000};   // for Upstream's answer: time in its queue
    Time progress_timeout{60'000};  // for a request that moves no byte in either direction
    Time tunnel_timeout{3'600'000}; // the same after an upgrade
    Time linger{1'000};             // for a client to read our last words before the connection is cut
    Time drain_grace{0};            // that idle connections still have for a request when the front drains; 0: none

    // Connections at once, in all and of one client (an IPv4 address, the first 64 bits of an IPv6 address); 0: no
    // limit. Of this host's own clients the second counts only when told.
    std::uint64_t max_connections = 0, max_per_client = 0;
    bool spare_loopback = true;
    bool spare_unix = false; // neither counts for Unix sockets
    // Bytes a second that a client must move, on the average of `min_rate_window` in which nothing but the client is
    // waited for: of a request's body, and of a reply. Not after an upgrade. 0: any.
    std::uint64_t min_rate = 0;
    Time min_rate_window{30'000};

    bool make_traceparent = false;  // when the client sent none
    bool forwarded_headers = false; // X-Forwarded-For, -Proto, -Host; off: programs see what clients sent
    // A client that ends its sending side while it waits for a reply has gone, as far as one can tell. On: it is
    // served (nc -N, some HTTP/1.0 clients), and one that vanished is noticed only when it is written to.
    bool half_close_is_alive = false;
};

} // namespace kvmserver::http
