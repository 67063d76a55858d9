// What the front tells about requests, for access logs and metrics.
#pragma once
#include <cstdint>
#include <string_view>

#include "src/http/upstream.hpp"

namespace kvmserver::http {

using request::kOutcomes;
using request::Outcome;

// Valid during the call alone.
struct RequestRecord {
    std::string_view request_id, traceparent, client_ip, method, host, path; // "" where the head was not understood
    unsigned status = 0;                                                     // that the client was sent; 0: none
    Outcome outcome = Outcome::ok;
    std::uint64_t bytes_in = 0;  // from the client, with the head
    std::uint64_t bytes_out = 0; // to the client, with the head
    std::uint64_t queue_us = 0;  // until Upstream answered
    std::uint64_t exec_us = 0;   // from then until the end of the reply
    std::uint64_t total_us = 0;  // from the request's first byte
    const Lease* lease = nullptr;
};

// Why a connection was closed that had no request.
enum class Refusal {
    too_many_connections, // Options::max_connections: 503
    too_many_of_client,   // Options::max_per_client: 503
    gave_way,             // to one of a client with fewer connections
    silent,               // it never said anything
};
std::string_view to_string(Refusal refusal); // "too-many-connections"

// Called on the front's threads, several at once. Must not block.
class Observer {
public:
    virtual ~Observer() = default;
    virtual void finished(const RequestRecord& record) = 0;
    virtual void refused(Refusal) {}
};

// Summed over threads.
struct Counters {
    std::uint64_t connections = 0;      // accepted
    std::uint64_t open_connections = 0; // now
    std::uint64_t requests = 0;         // finished
    std::uint64_t in_flight = 0;        // now
    std::uint64_t bytes_in = 0, bytes_out = 0;
    std::uint64_t by_outcome[kOutcomes] = {}; // by Outcome
    std::uint64_t by_class[6] = {};           // by status / 100; [0]: none was sent
};

} // namespace kvmserver::http
