#include "src/request/outcome.hpp"

namespace kvmserver::request {

std::string_view log_word(Outcome outcome) {
    switch (outcome) {
    case Outcome::ok: return "ok";
    case Outcome::refused: return "refused";
    case Outcome::client_timeout:
    case Outcome::program_silent: return "timed_out";
    case Outcome::client_slow: return "client_slow";
    case Outcome::client_gone: return "client_gone";
    case Outcome::no_route:
    case Outcome::not_live:
    case Outcome::queue_full:
    case Outcome::queue_timeout:
    case Outcome::function_failing:
    case Outcome::not_restored:
    case Outcome::not_forwarded:
    case Outcome::cluster_away:
    case Outcome::no_socket: return code_of(outcome);
    case Outcome::program_failed:
    case Outcome::no_progress:
    case Outcome::over_total:
    case Outcome::over_cpu:
    case Outcome::out_of_memory:
    case Outcome::worker_died:
    case Outcome::bad_reply:
    case Outcome::internal: return "program_failed";
    case Outcome::stopped: return "stopped";
    }
    return "?";
}

std::string_view code_of(Outcome outcome) {
    switch (outcome) {
    case Outcome::ok: return "ok";
    case Outcome::refused: return "bad-request";
    case Outcome::client_timeout: return "body-timeout";
    case Outcome::client_slow: return "client-too-slow";
    case Outcome::client_gone: return "client-gone";
    case Outcome::no_route: return "no-route";
    case Outcome::not_live: return "not-live";
    case Outcome::queue_full: return "queue-full";
    case Outcome::queue_timeout: return "queue-timeout";
    case Outcome::function_failing: return "function-failing";
    case Outcome::not_restored: return "not-restored";
    case Outcome::not_forwarded: return "not-forwarded";
    case Outcome::cluster_away: return "cluster-away";
    case Outcome::no_socket: return "no-socket";
    case Outcome::program_failed: return "program-failed";
    case Outcome::no_progress:
    case Outcome::over_total: return "request-timeout";
    case Outcome::over_cpu: return "request-cpu";
    case Outcome::out_of_memory: return "out-of-memory";
    case Outcome::worker_died: return "worker-died";
    case Outcome::bad_reply: return "bad-reply";
    case Outcome::program_silent: return "program-timeout";
    case Outcome::stopped: return "stopping";
    case Outcome::internal: return "internal";
    }
    return "?";
}

bool had_no_machine(Outcome outcome) { return outcome >= Outcome::no_route && outcome <= Outcome::no_socket; }

bool by_client(Outcome outcome) { return outcome >= Outcome::refused && outcome <= Outcome::client_gone; }

bool by_time_limit(Outcome outcome) {
    return outcome == Outcome::client_timeout || outcome == Outcome::no_progress || outcome == Outcome::over_total ||
           outcome == Outcome::over_cpu || outcome == Outcome::program_silent;
}

bool from_machine(Outcome outcome) {
    switch (outcome) {
    case Outcome::program_failed:
    case Outcome::no_progress:
    case Outcome::over_total:
    case Outcome::over_cpu:
    case Outcome::out_of_memory:
    case Outcome::stopped: return true;
    default: return false;
    }
}

} // namespace kvmserver::request
