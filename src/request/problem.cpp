#include "src/request/problem.hpp"

#include <fmt/format.h>

namespace kvmserver::request {
namespace {

// Names the option that sets the limit, in the form that the owner of the program uses.
std::string set_by(const Circumstances& of, const std::string& option) {
    return of.function.empty() ? fmt::format("--{} sets the limit", option)
                               : fmt::format("{} in the manifest sets the limit", option);
}

std::string no_progress(const Circumstances& of) {
    return of.progress_seconds > 0 ? fmt::format("the request made no progress for {:.4g} s", of.progress_seconds)
                                   : "the request made no progress for longer than it may";
}

std::string too_long(const Circumstances& of) {
    return of.total_seconds > 0 ? fmt::format("the request took longer than {:.4g} s in all", of.total_seconds)
                                : "the request took longer in all than it may";
}

std::string too_much_cpu(const Circumstances& of) {
    return of.cpu_seconds > 0 ? fmt::format("the request used more than {:.4g} s of CPU", of.cpu_seconds)
                              : "the request used more CPU time than it may";
}

Problem queue_full(const Circumstances& of) {
    if (of.function.empty())
        return {.detail = fmt::format("{} requests wait for a machine already", of.waiting),
                .hint = "more machines: --threads"};
    return {.detail = fmt::format("{} has {} requests waiting already, as many as it may", of.function, of.waiting),
            .hint = of.all_busy ? "try again later; [function.scale] queue and max set the limits"
                                : "try again later; [function.scale] queue sets the limit"};
}

Problem queue_timeout(const Circumstances& of) {
    if (of.function.empty())
        return {.detail = "No machine became free in time.", .hint = "more machines: --threads"};
    return {.detail = fmt::format("no machine of {} became free within {:.4g} s", of.function, of.waited_seconds),
            .hint = "try again later; [function.scale] max and queue-timeout set the limits"};
}

// Fills in `detail` and `hint`.
Problem words(Outcome outcome, const Circumstances& of) {
    switch (outcome) {
    case Outcome::ok:
    case Outcome::refused:
    case Outcome::client_gone: // nobody is left to tell
        return {};
    case Outcome::client_timeout: return {.detail = "The body of the request did not arrive in time."};
    case Outcome::client_slow:
        return {.detail = fmt::format("The client moved less than {} bytes a second.", of.min_rate)};
    case Outcome::no_route:
        return {.detail = fmt::format("No function has a route for {}.", of.reason),
                .hint = "`kvmserver list` shows the functions and their routes; the Host header chooses."};
    case Outcome::not_live:
        return {.detail = fmt::format("No version of {} is live.", of.function),
                .hint = fmt::format(
                    "`kvmserver versions {0}` shows those there are, `kvmserver rollback {0} VERSION` makes one live.",
                    of.function)};
    case Outcome::queue_full: return queue_full(of);
    case Outcome::queue_timeout: return queue_timeout(of);
    case Outcome::function_failing:
        return {.detail =
                    fmt::format("the process of {} ended {} times in a row: {}", of.version, of.failures, of.reason),
                .hint = fmt::format("`kvmserver logs {}` and the daemon's log say more", of.function)};
    case Outcome::not_restored:
        return {.detail = fmt::format("{} cannot be restored: {}", of.version, of.reason),
                .hint = "the daemon's log says more"};
    case Outcome::not_forwarded:
        return {.detail =
                    fmt::format("{} was migrated, and cannot be reached where it is now: {}", of.function, of.reason),
                .hint = fmt::format("`kvmserver describe {}` says where; the daemon there must run", of.function)};
    case Outcome::cluster_away:
        return {.detail = "this node has not reached its cluster's index for longer than it may serve without it",
                .hint = "try again later, or another node"};
    case Outcome::no_socket:
        return {.detail = fmt::format("the server has no socket left: {}", of.reason),
                .hint = "raise its limit of open files"};
    case Outcome::program_failed:
        return {.detail = "the program ended during the request",
                .hint = of.function.empty()
                            ? "its crash report is in kvmserver's output"
                            : fmt::format("its crash report: `{}`", logs_command(of.function, of.request_id))};
    case Outcome::no_progress: return {.detail = no_progress(of), .hint = set_by(of, "max-request-time")};
    case Outcome::over_total: return {.detail = too_long(of), .hint = set_by(of, "max-request-total")};
    case Outcome::over_cpu: return {.detail = too_much_cpu(of), .hint = set_by(of, "max-request-cpu")};
    case Outcome::out_of_memory:
        return {.detail = "the request took more memory than it may", .hint = set_by(of, "max-request-memory")};
    case Outcome::worker_died:
        return {.detail = fmt::format("the process of {} ended during the request", of.version),
                .hint = "the daemon's log says why"};
    case Outcome::bad_reply: return {.detail = "the program gave no complete HTTP reply"};
    case Outcome::program_silent: return {.detail = "The program did not answer in time."};
    case Outcome::stopped: return {.detail = "the server is stopping", .hint = "try again"};
    case Outcome::internal: return {.detail = fmt::format("The front failed: {}", of.reason)};
    }
    return {};
}

unsigned status_of(Outcome outcome) {
    switch (outcome) {
    case Outcome::ok: return 200;
    case Outcome::refused: return 400;
    case Outcome::client_timeout:
    case Outcome::client_slow:
    case Outcome::client_gone: return 408;
    case Outcome::no_route: return 404;
    case Outcome::not_live:
    case Outcome::queue_full:
    case Outcome::queue_timeout:
    case Outcome::function_failing:
    case Outcome::cluster_away:
    case Outcome::no_socket:
    case Outcome::stopped: return 503;
    case Outcome::not_restored:
    case Outcome::not_forwarded:
    case Outcome::program_failed:
    case Outcome::worker_died:
    case Outcome::bad_reply: return 502;
    case Outcome::no_progress:
    case Outcome::over_total:
    case Outcome::over_cpu:
    case Outcome::program_silent: return 504;
    case Outcome::out_of_memory: return 507;
    case Outcome::internal: return 500;
    }
    return 500;
}

// Seconds after which a retry makes sense.
std::optional<unsigned> retry_after(Outcome outcome, const Circumstances& of) {
    switch (outcome) {
    case Outcome::not_live: return 10;
    case Outcome::cluster_away: return 5;
    case Outcome::queue_full:
    case Outcome::queue_timeout:
    case Outcome::not_restored:
    case Outcome::not_forwarded:
    case Outcome::no_socket:
    case Outcome::stopped: return 1;
    case Outcome::function_failing: return of.retry_seconds;
    default: return {};
    }
}

} // namespace

std::string logs_command(const std::string& function, const std::string& request_id) {
    return fmt::format("kvmserver logs {}{}", function, request_id.empty() ? "" : " --request " + request_id);
}

Problem problem_for(Outcome outcome, const Circumstances& of) {
    Problem problem = words(outcome, of);
    problem.outcome = outcome;
    problem.status = status_of(outcome);
    problem.code = code_of(outcome);
    problem.retry_after = retry_after(outcome, of);
    if (outcome == Outcome::not_restored && of.chunks_away) {
        problem.status = 503;
        problem.code = "chunks-away";
    }
    return problem;
}

} // namespace kvmserver::request
