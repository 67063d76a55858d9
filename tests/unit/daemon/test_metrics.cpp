#include <malloc.h>

#include <thread>

#include "src/daemon/metrics.hpp"
#include "tests/catch.hpp"

using namespace kvmserver::daemon;

TEST_CASE("threads that come and go leave what they counted, and nothing else") {
    Metrics metrics;
    const auto count = [&](int threads) {
        for (int i = 0; i < threads; ++i)
            std::thread([&] { metrics.count("hello", 1, [](VersionMetrics& m) { ++m.requests[200]; }); }).join();
    };
    count(100);
    const std::size_t before = ::mallinfo2().uordblks;
    count(1000);
    CHECK(::mallinfo2().uordblks < before + 100'000);
    CHECK(metrics.snapshot().versions.at({"hello", 1}).requests.at(200) == 1100);
}
