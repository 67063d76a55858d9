// What the front reports about requests, for access logs and metrics.
#pragma once
#include <chrono>
#include <cstdint>
#include <string_view>

#include "src/http/trace_context.hpp"
#include "src/http/upstream.hpp"

namespace kvmserver::http {

using request::kOutcomes;
using request::Outcome;

// Valid only during the call.
struct RequestRecord {
    std::string_view request_id, traceparent, client_ip, method, host, path; // "" if the head could not be parsed
    unsigned status = 0;                                                     // sent to the client; 0: none
    Outcome outcome = Outcome::ok;
    std::uint64_t bytes_in = 0;                  // from the client, including the head
    std::uint64_t bytes_out = 0;                 // to the client, including the head
    std::uint64_t queue_us = 0;                  // until Upstream answered
    std::uint64_t exec_us = 0;                   // from then until the end of the reply
    std::uint64_t total_us = 0;                  // from the request's first byte
    std::uint64_t head_us = 0;                   // of that: until its head had arrived
    std::chrono::steady_clock::time_point ended; // the reply: perhaps a millisecond ago
    const Lease* lease = nullptr;
    const Trace* trace = nullptr;      // with Options::trace_share, if the head could be parsed
    const RequestHead* head = nullptr; // the same
    bool secure = false;               // over TLS
};

// Why a connection without a request was refused or closed.
enum class Refusal {
    too_many_connections, // Options::max_connections: 503
    too_many_of_client,   // Options::max_per_client: 503
    gave_way,             // to make room for a client with fewer connections
    silent,               // it never sent anything
};
std::string_view to_string(Refusal refusal); // "too-many-connections"

// Called on the front's threads, concurrently. Must not block.
class Observer {
public:
    virtual ~Observer() = default;
    virtual void finished(const RequestRecord& record) = 0;
    virtual void refused(Refusal) {}
};

// Totals of all threads.
struct Counters {
    std::uint64_t connections = 0;      // accepted
    std::uint64_t open_connections = 0; // currently open
    std::uint64_t requests = 0;         // finished
    std::uint64_t in_flight = 0;        // currently being served
    std::uint64_t bytes_in = 0, bytes_out = 0;
    std::uint64_t by_outcome[kOutcomes] = {}; // indexed by Outcome
    std::uint64_t by_class[6] = {};           // indexed by status / 100; [0]: none was sent
};

} // namespace kvmserver::http
