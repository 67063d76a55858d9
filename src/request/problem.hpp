// Why a request has no proper reply, for its client.
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

// What the words need to know; what an outcome does not speak of may be left out.
struct Circumstances {
    std::string function{};                         // of `serve`; "": a program that the command line runs
    std::string version{};                          // of it: "hello v4"
    double progress_seconds = 0, total_seconds = 0; // the limits; 0: not known here
    std::uint64_t waiting = 0;                      // queue_full
    bool queue_counts_max = false;                  // queue_full: no machine is being restored for it
    double waited_seconds = 0;                      // queue_timeout
    std::string reason{};                     // not_restored, function_failing, no_socket, internal: what went wrong
    unsigned failures = 0, retry_seconds = 1; // function_failing
    std::uint64_t min_rate = 0;               // client_slow: bytes a second
};

Problem problem_for(Outcome outcome, const Circumstances& of = {});

} // namespace kvmserver::request
