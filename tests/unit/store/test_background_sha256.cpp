#include <algorithm>
#include <random>

#include "src/common/background_sha256.hpp"
#include "tests/amount.hpp"
#include "tests/catch.hpp"

using namespace kvmserver;

TEST_CASE("parts that are added up beside and at once give the digest of all of them in order") {
    std::mt19937 random(7);
    const int rounds = kvmserver::test::amount(20);
    for (int round = 0; round < rounds; ++round) {
        BackgroundSha256 beside;
        Sha256 plain;
        tinykvm::IoBuffer part;
        for (int i = 0; i < 30; ++i) {
            part.resize(random() % (i % 7 == 0 ? 3'000'000u : 5'000u));
            std::ranges::generate(part, [value = random()]() mutable { return static_cast<std::byte>(value += 7); });
            plain.update(part);
            if (random() % 3 == 0)
                beside.add(part);
            else
                beside.add_later(part); // its content is anything then
            part.assign(part.size(), std::byte{0xaa});
        }
        CHECK(beside.finish() == plain.finish());
    }
}
