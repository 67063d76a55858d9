#include <random>

#include "src/unique/mt19937.hpp"
#include "tests/catch.hpp"

using namespace kvmserver::unique;

namespace {

// mt19937ar.c's init_by_array, and CPython's and Ruby's.
MtState by_key(const std::vector<std::uint32_t>& key) {
    MtState mt{19650218};
    const auto mixed = [](std::uint32_t a) { return a ^ (a >> 30); };
    for (std::uint32_t i = 1; i < 624; ++i)
        mt[i] = 1812433253u * mixed(mt[i - 1]) + i;
    std::uint32_t i = 1, j = 0;
    const auto next = [&] {
        if (++i == 624) {
            mt[0] = mt[623];
            i = 1;
        }
    };
    for (std::size_t k = std::max<std::size_t>(624, key.size()); k != 0; --k) {
        mt[i] = (mt[i] ^ (mixed(mt[i - 1]) * 1664525u)) + key[j] + j;
        j = (j + 1) % static_cast<std::uint32_t>(key.size());
        next();
    }
    for (int k = 623; k != 0; --k) {
        mt[i] = (mt[i] ^ (mixed(mt[i - 1]) * 1566083941u)) - i;
        next();
    }
    mt[0] = 0x80000000;
    return mt;
}

MtState by_number(std::uint32_t seed) {
    MtState mt{seed};
    for (std::uint32_t i = 1; i < 624; ++i)
        mt[i] = 1812433253u * (mt[i - 1] ^ (mt[i - 1] >> 30)) + i;
    return mt;
}

void twist(MtState& mt) {
    for (std::uint32_t i = 0; i < 624; ++i) {
        const std::uint32_t y = (mt[i] & 0x80000000) | (mt[(i + 1) % 624] & 0x7fffffff);
        mt[i] = mt[(i + 397) % 624] ^ (y >> 1) ^ (y & 1 ? 0x9908b0df : 0);
    }
}

} // namespace

TEST_CASE("A Mersenne Twister that was seeded on purpose is known by its state") {
    const int blocks = GENERATE(0, 1, 7, 500);
    std::vector<MtState> states{by_key({42}),      by_key({0}),
                                by_key({1, 2, 3}), by_key(std::vector<std::uint32_t>(100, 7)),
                                by_number(42),     by_number(0)};
    for (MtState& state : states) {
        for (int i = 0; i < blocks; ++i)
            twist(state);
        CHECK(seed_of(state) == MtSeed::chosen);
    }
    CHECK(number_seed_of(states[4]) == 42);
    CHECK(number_seed_of(states[5]) == 0);
}

TEST_CASE("A Mersenne Twister that the system seeded is not taken for a seeded one") {
    std::mt19937_64 random(1);
    std::vector<std::uint32_t> key(624);
    for (std::uint32_t& word : key)
        word = static_cast<std::uint32_t>(random());
    MtState state = by_key(key);
    CHECK(seed_of(state) == MtSeed::unknown);
    twist(state);
    CHECK(seed_of(state) == MtSeed::unknown);
    CHECK_FALSE(number_seed_of(state));
}
