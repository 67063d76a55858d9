// What is said of a time limit that was used up, and the request to stop.
#include "src/event_loop/overrun.hpp"

#include <poll.h>

#include <cerrno>
#include <string>

#include "src/event_loop/stop.hpp"
#include "tests/catch.hpp"

using namespace kvmserver;

TEST_CASE("a time limit that was used up is told with the option that sets it") {
    tinykvm::Limits limits;
    limits.request_seconds = 8;
    limits.request_total_seconds = 0.25;
    limits.request_cpu_seconds = 1.5;
    CHECK(overrun_text(Overrun::computed, limits) == "made no progress: it computed for 8 s (--max-request-time)");
    CHECK(overrun_text(Overrun::idle, limits) == "made no progress: its client was idle for 8 s (--max-request-time)");
    CHECK(overrun_text(Overrun::stuck, limits) ==
          "made no progress: for 8 s it waited for nothing that could come (--max-request-time)");
    CHECK(overrun_text(Overrun::cpu, limits) == "used more than 1.5 s of CPU (--max-request-cpu)");
    CHECK(overrun_text(Overrun::total, limits) == "took longer than 0.25 s in all (--max-request-total)");
}

TEST_CASE("a request that took too long in all is another outcome than one without progress") {
    CHECK(outcome_of(Overrun::cpu) == request::Outcome::over_cpu);
    CHECK(outcome_of(Overrun::total) == request::Outcome::over_total);
    for (const Overrun other : {Overrun::computed, Overrun::idle, Overrun::stuck})
        CHECK(outcome_of(other) == request::Outcome::no_progress);
}

TEST_CASE("a stop once requested stays so, wakes who waits, and leaves errno to whom it interrupted") {
    Stopper stopper;
    CHECK_FALSE(stopper.requested());
    pollfd wanted{stopper.fd(), POLLIN, 0};
    CHECK(::poll(&wanted, 1, 0) == 0);
    errno = ENOENT;
    stopper.request();
    stopper.request();
    CHECK(errno == ENOENT);
    CHECK(stopper.requested());
    CHECK(::poll(&wanted, 1, 0) == 1);
    CHECK(::poll(&wanted, 1, 0) == 1); // for everybody
}
