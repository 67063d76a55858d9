// The front's options, as plain values.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>

#include "src/http/head_end.hpp"

namespace kvmserver::http {

struct Options {
    using Time = std::chrono::milliseconds; // 0: no limit
    unsigned threads = 1;
    HeadLimits limits;
    std::uint64_t max_body = 0; // bytes of a request's body; 0: no limit

    Time header_timeout{10'000};    // from a request's first byte (or a TLS connection's start) to the end of its head
    Time idle_timeout{75'000};      // between requests
    Time connect_timeout{30'000};   // for Upstream's answer: the time in its queue
    Time progress_timeout{60'000};  // for a request that moves no byte in either direction
    Time tunnel_timeout{3'600'000}; // the same after an upgrade
    Time linger{1'000};             // for a client to read the last reply before the connection is cut
    Time drain_grace{0};            // how long idle connections may still send a request after drain(); 0: not at all

    // Concurrent connections, in total and per client (an IPv4 address, or the first 64 bits of an IPv6 address); 0: no
    // limit. With spare_loopback the limit per client does not apply to clients on this host.
    std::uint64_t max_connections = 0, max_per_client = 0;
    bool spare_loopback = true;
    bool spare_unix = false; // neither limit applies to Unix sockets
    // Bytes per second that a client must send of a body or take of a reply. Averaged over `min_rate_window`, counting
    // only time in which the front waits for nothing but the client. Not after an upgrade. 0: no limit.
    std::uint64_t min_rate = 0;
    Time min_rate_window{30'000};

    // Requests get a Trace, and the program gets a traceparent with its span. The number is the share of those without
    // a traceparent that are sampled.
    std::optional<double> trace_share;
    bool forwarded_headers = false; // add X-Forwarded-For, -Proto, -Host; off: programs see what clients sent
    // Whether a client that closes its sending side while it waits for a reply is still served (nc -N, some HTTP/1.0
    // clients). Such a client looks like one that has gone: if it is served, a client that vanished is only noticed
    // when it is written to.
    bool half_close_is_alive = false;
};

} // namespace kvmserver::http
