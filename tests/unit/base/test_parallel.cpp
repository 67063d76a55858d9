#include "tinykvm/base/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <vector>

#include "tests/catch.hpp"

using tinykvm::in_parallel;

TEST_CASE("every piece of work is done once") {
    for (const std::size_t count : {0u, 1u, 2u, 10'000u}) {
        CAPTURE(count);
        std::vector<std::atomic<int>> done(count);
        in_parallel(count, [&](std::size_t i) { ++done[i]; });
        CHECK(std::ranges::all_of(done, [](const auto& each) { return each == 1; }));
    }
}

TEST_CASE("what a piece throws is thrown to the caller, and no piece is begun after that") {
    std::atomic<std::size_t> begun{0};
    const auto fail_at_3 = [&](std::size_t i) {
        ++begun;
        if (i == 3)
            throw std::runtime_error("the third");
    };
    CHECK_THROWS_WITH(in_parallel(1'000'000'000, fail_at_3), "the third");
    CHECK(begun < 1'000'000'000);
}
