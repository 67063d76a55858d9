// How a request ended: the same for `run`, `snaprun` and `serve`, from the machine that had it to the access log.
#pragma once
#include <cstdint>
#include <string_view>

namespace kvmserver::request {

// The values are also sent between the daemon and the processes of functions (src/protocol): of one build both.
enum class Outcome : std::uint8_t {
    ok,
    // The client's doing.
    refused,        // its message is not acceptable: 400, 413, 414, 431, 501, 505
    client_timeout, // its head or body did not arrive in time
    client_slow,    // it moved less than http::Options::min_rate
    client_gone,    // before its reply was complete
    // No machine had it.
    no_route,
    not_live, // the function has no version that is
    queue_full,
    queue_timeout,
    function_failing, // its process ended too often, the next start comes later
    not_restored,     // its process was never ready
    no_socket,        // the server has no descriptors left
    // A machine had it.
    program_failed, // the program ended or crashed
    no_progress,    // over --max-request-time
    over_total,     // over --max-request-total
    out_of_memory,  // over --max-request-memory
    worker_died,    // the process that has the machine ended
    bad_reply,      // none, malformed or cut off by the program
    program_silent, // over http::Options::progress_timeout
    // Ours.
    stopped, // the server ends
    internal,
};
inline constexpr unsigned kOutcomes = static_cast<unsigned>(Outcome::internal) + 1;

// How the program ended its connection.
enum class Closing : std::uint8_t { clean, reset };

// The word of access logs: "ok", "refused", "timed_out", "client_slow", "client_gone", "program_failed", "stopped", or
// the code of one that no machine had.
std::string_view log_word(Outcome outcome);

// For programs, and for metrics: "queue-full". Several kinds of refused and bad_reply have codes of their own instead.
std::string_view code_of(Outcome outcome);

bool had_no_machine(Outcome outcome);
bool by_time_limit(Outcome outcome); // of the client, the program or the machine; not of the queue

// Whether a process may say so of its request; it may have been taken over and say anything.
bool from_machine(Outcome outcome);

} // namespace kvmserver::request
