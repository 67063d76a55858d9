// Trials that need not be repeated.
#include "tests/catch.hpp"

#include <chrono>
#include <cstddef>
#include <string>

#include "src/daemon/passed_trials.hpp"

using namespace kvmserver;
using namespace kvmserver::daemon;

namespace {

Digest snapshot(const std::string& name) { return sha256(name); }

} // namespace

TEST_CASE("a passed trial counts for some minutes, however often", "[passed_trials]") {
    PassedTrials passed;
    const auto now = PassedTrials::Clock::now();
    const Digest trial = PassedTrials::name(snapshot("app"), {"A=1"});
    CHECK(!passed.has(trial, now));
    passed.note(trial, snapshot("app"), now);
    CHECK(passed.has(trial, now));
    CHECK(passed.has(trial, now + PassedTrials::kCount - std::chrono::seconds(1)));
    CHECK(!passed.has(trial, now + PassedTrials::kCount));
}

TEST_CASE("a trial of something else is another", "[passed_trials]") {
    const Digest trial = PassedTrials::name(snapshot("app"), {"A=1", "ceilings"});
    CHECK(trial == PassedTrials::name(snapshot("app"), {"A=1", "ceilings"}));
    CHECK(trial != PassedTrials::name(snapshot("other"), {"A=1", "ceilings"}));
    CHECK(trial != PassedTrials::name(snapshot("app"), {"A=2", "ceilings"}));
    CHECK(trial != PassedTrials::name(snapshot("app"), {"A=1c", "eilings"}));
    CHECK(trial != PassedTrials::name(snapshot("app"), {"A=1", "ceilings", ""}));
}

TEST_CASE("a snapshot that could not be restored is tried again", "[passed_trials]") {
    PassedTrials passed;
    const Digest one = PassedTrials::name(snapshot("app"), {"A=1"}), two = PassedTrials::name(snapshot("app"), {"A=2"}),
                 other = PassedTrials::name(snapshot("other"), {"A=1"});
    passed.note(one, snapshot("app"));
    passed.note(two, snapshot("app"));
    passed.note(other, snapshot("other"));
    passed.forget(snapshot("app"));
    CHECK(!passed.has(one));
    CHECK(!passed.has(two));
    CHECK(passed.has(other));
}

TEST_CASE("of many trials the oldest are tried again", "[passed_trials]") {
    PassedTrials passed;
    const auto now = PassedTrials::Clock::now();
    const auto at = [&](std::size_t number) { return now + std::chrono::milliseconds(number); };
    for (std::size_t number = 0; number <= PassedTrials::kMost; ++number)
        passed.note(snapshot(std::to_string(number)), snapshot("app"), at(number));
    const auto after = at(PassedTrials::kMost);
    CHECK(!passed.has(snapshot("0"), after));
    CHECK(passed.has(snapshot("1"), after));
    CHECK(passed.has(snapshot(std::to_string(PassedTrials::kMost)), after));
}
