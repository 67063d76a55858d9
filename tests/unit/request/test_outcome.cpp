#include <set>

#include "src/request/problem.hpp"
#include "tests/catch.hpp"

using namespace kvmserver::request;

namespace {
template <class Action>
void for_each_outcome(const Action& action) {
    for (unsigned i = 0; i < kOutcomes; ++i)
        action(static_cast<Outcome>(i));
}
} // namespace

TEST_CASE("each outcome has a word for the log, a code, and what its client is told") {
    Circumstances of;
    of.function = "hello";
    of.version = "hello v4";
    of.reason = "no such file";
    for_each_outcome([&](Outcome outcome) {
        INFO(static_cast<unsigned>(outcome));
        CHECK(log_word(outcome) != "?");
        CHECK(code_of(outcome) != "?");
        const Problem problem = problem_for(outcome, of);
        CHECK(problem.outcome == outcome);
        CHECK(problem.code == code_of(outcome));
        if (outcome == Outcome::ok || outcome == Outcome::refused || outcome == Outcome::client_gone)
            return; // the front has its own words, or nobody is told
        CHECK(!problem.detail.empty());
        CHECK(problem.status >= 400);
        CHECK(problem.detail.find("{}") == std::string::npos);
        CHECK((problem.status == 503) == (outcome == Outcome::not_live || outcome == Outcome::queue_full ||
                                          outcome == Outcome::queue_timeout || outcome == Outcome::function_failing ||
                                          outcome == Outcome::cluster_away || outcome == Outcome::no_socket ||
                                          outcome == Outcome::stopped));
        CHECK((problem.status == 504) == (by_time_limit(outcome) && outcome != Outcome::client_timeout));
        if (problem.status == 503) // come again
            CHECK(problem.retry_after.value_or(0) > 0);
    });
}

TEST_CASE("what no machine had is in the log by its code; what one had is not") {
    for_each_outcome([](Outcome outcome) {
        INFO(static_cast<unsigned>(outcome));
        CHECK(had_no_machine(outcome) == (log_word(outcome) == code_of(outcome) && outcome != Outcome::ok));
        CHECK_FALSE((had_no_machine(outcome) && by_time_limit(outcome)));
    });
}

// Anything else from a process that has been taken over would be counted as the client's or the daemon's doing.
TEST_CASE("a process can say of its request only what a machine can know") {
    std::set<Outcome> believed;
    for (unsigned i = 0; i < 256; ++i) // as it comes from a socket
        if (from_machine(static_cast<Outcome>(i)))
            believed.insert(static_cast<Outcome>(i));
    CHECK(believed == std::set{Outcome::program_failed, Outcome::no_progress, Outcome::over_total, Outcome::over_cpu,
                               Outcome::out_of_memory, Outcome::stopped});
}

TEST_CASE("who runs a program is told the option, who deployed a function the manifest's line") {
    Circumstances here;
    here.progress_seconds = 2.5;
    here.total_seconds = 30;
    CHECK(problem_for(Outcome::no_progress, here).detail == "the request made no progress for 2.5 s");
    CHECK(problem_for(Outcome::no_progress, here).hint == "--max-request-time sets the limit");
    CHECK(problem_for(Outcome::over_total, here).detail == "the request took longer than 30 s in all");
    here.cpu_seconds = 0.5;
    CHECK(problem_for(Outcome::over_cpu, here).detail == "the request used more than 0.5 s of CPU");
    CHECK(problem_for(Outcome::over_cpu, here).hint == "--max-request-cpu sets the limit");
    Circumstances there;
    there.function = "hello";
    CHECK(problem_for(Outcome::out_of_memory, there).hint == "max-request-memory in the manifest sets the limit");
    CHECK(problem_for(Outcome::program_failed, there).hint == "its crash report: `kvmserver logs hello`");
    there.request_id = "0123456789abcdef";
    CHECK(problem_for(Outcome::program_failed, there).hint ==
          "its crash report: `kvmserver logs hello --request 0123456789abcdef`");
    CHECK(problem_for(Outcome::queue_full, here).hint == "more machines: --threads");
}
