#include "src/event_loop/spent_time.hpp"
#include "tests/catch.hpp"

using kvmserver::Overrun;
using kvmserver::SpentTime;

TEST_CASE("waits that count add up until there is progress; time in which the thread did not run is nobody's") {
    constexpr std::uint64_t kSecond = 1'000'000'000;
    SpentTime spent;
    spent.restart(0);
    spent.waited(3 * kSecond, Overrun::stuck);
    spent.waited(kSecond, Overrun::idle);
    CHECK(spent.in_all(4 * kSecond, 0) < 5 * kSecond);
    CHECK(spent.in_all(4 * kSecond, 0) >= 4 * kSecond);
    CHECK(spent.in_all(1000 * kSecond, 0) < 5 * kSecond); // by this thread's own clock it computed next to nothing
    CHECK(spent.why(6 * kSecond) == Overrun::idle);
    CHECK(spent.why(60 * kSecond) == Overrun::computed);
    CHECK(spent.in_all(304 * kSecond, 3) >= 104 * kSecond); // a third of what it might have run, beside its waits
    spent.restart(1000 * kSecond);
    CHECK(spent.in_all(1000 * kSecond, 0) == 0);
}

TEST_CASE("computing counts by the thread's own clock") {
    constexpr std::uint64_t kLater = 1'000'000'000;
    SpentTime spent;
    spent.restart(0);
    const std::uint64_t before = spent.in_all(kLater, 0);
    volatile unsigned sum = 0;
    for (const std::uint64_t begin = tinykvm::thread_cpu_ns(); tinykvm::thread_cpu_ns() - begin < 20'000'000;)
        sum = sum + 1;
    CHECK(spent.in_all(kLater, 0) - before >= 20'000'000);
    CHECK(spent.why(20'000'000) == Overrun::computed);
}
