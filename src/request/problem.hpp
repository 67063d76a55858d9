// The error that a client gets instead of a proper reply.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "src/request/outcome.hpp"

namespace kvmserver::request {

struct Problem {
    Outcome outcome = Outcome::bad_reply;
    unsigned status = 502;
    std::string code{}; // stable, for programs: "no-reply"
    std::string detail{};
    std::string hint{};
    std::optional<unsigned> retry_after{}; // seconds
};

// Details that the texts may mention. Fields that do not concern the outcome may be left empty.
struct Circumstances {
    std::string function{}; // under `serve`; "" for a program that the command line runs
    std::string version{};  // of the function: "hello v4"
    std::string request_id{};
    // The limits; 0: unknown.
    double progress_seconds = 0, total_seconds = 0, cpu_seconds = 0;
    std::uint64_t waiting = 0;                // queue_full
    bool all_busy = false;                    // queue_full: all machines are busy and none is being restored
    double waited_seconds = 0;                // queue_timeout
    std::string reason{};                     // not_restored, function_failing, no_socket, internal: the cause
    unsigned failures = 0, retry_seconds = 1; // function_failing
    bool chunks_away = false;                 // not_restored: the bucket with its chunks is not reached
    std::uint64_t min_rate = 0;               // client_slow: bytes per second
};

// What shows a person the lines of a request: "kvmserver logs hello --request 0123456789abcdef".
std::string logs_command(const std::string& function, const std::string& request_id);

Problem problem_for(Outcome outcome, const Circumstances& of = {});

} // namespace kvmserver::request
