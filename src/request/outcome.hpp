// How a request ended. `run`, `snaprun` and `serve` use the same values, from the machine to the access log.
#pragma once
#include <cstdint>
#include <string_view>

namespace kvmserver::request {

// The values cross the sockets between the daemon and function processes (src/protocol). Both sides are always the same
// build.
enum class Outcome : std::uint8_t {
    ok,
    // Caused by the client.
    refused,        // malformed or not supported: 400, 413, 414, 431, 501, 505
    client_timeout, // its head or body did not arrive in time
    client_slow,    // slower than http::Options::min_rate
    client_gone,    // it disconnected before the reply was complete
    // No machine served the request.
    no_route,
    not_live, // the function has no live version
    queue_full,
    queue_timeout,
    function_failing, // its process failed repeatedly; the next start is delayed (back-off)
    not_restored,     // its process ended before it became ready
    not_forwarded,    // the function was migrated, and the server that has it now cannot be reached
    cluster_away,     // a node of a cluster whose index it has not reached for longer than it may serve without
    no_socket,        // the server has no file descriptors left
    // A machine served the request.
    program_failed, // the program ended or crashed
    no_progress,    // exceeded --max-request-time
    over_total,     // exceeded --max-request-total
    over_cpu,       // exceeded --max-request-cpu
    out_of_memory,  // exceeded --max-request-memory
    worker_died,    // the process that holds the machine ended
    bad_reply,      // no reply, or a malformed or truncated one
    program_silent, // exceeded http::Options::progress_timeout
    // Caused by the server.
    stopped, // the server is shutting down
    internal,
};
inline constexpr unsigned kOutcomes = static_cast<unsigned>(Outcome::internal) + 1;

// How the program ended its connection.
enum class Closing : std::uint8_t { clean, reset };

// The word in access logs: "ok", "refused", "timed_out", "client_slow", "client_gone", "program_failed", "stopped", or
// code_of() when no machine served the request.
std::string_view log_word(Outcome outcome);

// The code for API clients and metrics, such as "queue-full". Some kinds of `refused` and `bad_reply` have more
// specific codes.
std::string_view code_of(Outcome outcome);

bool had_no_machine(Outcome outcome);
bool by_client(Outcome outcome);     // the client caused it
bool by_time_limit(Outcome outcome); // of the client, the program or the machine; not of the queue

// Whether a function process may report this outcome. The process may be compromised and report anything.
bool from_machine(Outcome outcome);

} // namespace kvmserver::request
