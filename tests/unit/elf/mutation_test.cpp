#include <random>

#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/unit/elf/exercise.hpp"
#include "tests/unit/elf/support.hpp"
#include "tinykvm/elf/vdso/vdso.hpp"

using namespace elf_test;

namespace {

// Flips some bits, mostly where the structure is, and now and then cuts the file.
void spoil(Bytes& bytes, std::mt19937_64& random) {
    const auto below = [&](std::uint64_t n) { return random() % n; };
    for (std::uint64_t flips = 1 + below(8); flips > 0; --flips) {
        const std::uint64_t range = below(4) ? std::min<std::uint64_t>(bytes.size(), 1024) : bytes.size();
        bytes[below(range)] ^= static_cast<std::byte>(1u << below(8));
    }
    if (below(16) == 0)
        bytes.resize(below(bytes.size()));
}

int mutate(const Bytes& original, int times, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    int sound = 0;
    for (int i = 0; i < times; ++i) {
        Bytes bytes = original;
        spoil(bytes, random);
        // A copy of the exact size: reading one byte more is then an error that ASAN sees.
        sound += exercise(Bytes(bytes.begin(), bytes.end())) > 0;
    }
    return sound;
}

} // namespace

TEST_CASE("flipped bits never crash the readers") {
    const Bytes program = read_whole(TEST_SAMPLES "/elf_runpath");
    REQUIRE(exercise(program) == 3);
    const int times = kvmserver::test::amount(10'000);
    const int sound = mutate(program, times, 1);
    // Both kinds of outcome were tried.
    CHECK(sound > times / 20);
    CHECK(sound < times - times / 20);

    const auto vdso = tinykvm::vdso_image();
    mutate(Bytes(vdso.begin(), vdso.end()), times, 2);
    if (const Bytes cache = read_whole("/etc/ld.so.cache"); !cache.empty())
        mutate(cache, 100, 3);
}

TEST_CASE("a file cut anywhere never crashes the readers") {
    const Bytes program = read_whole(TEST_SAMPLES "/elf_runpath");
    const std::size_t step = kvmserver::test::all_tests() ? 61 : 61 * 4;
    for (std::size_t size = 0; size < program.size(); size += size < 1024 ? 1 : step)
        exercise(Bytes(program.begin(), program.begin() + static_cast<std::ptrdiff_t>(size)));
}
