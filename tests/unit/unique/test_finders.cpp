// Finders against memory made up here: what they must find, and near misses that they must leave alone. Real runtimes:
// tests/e2e/test_unique.py.
#include <array>
#include <cstring>
#include <map>
#include <random>

#include "include/kvmserver/entropy.h"
#include "src/unique/finder.hpp"
#include "tests/catch.hpp"
#include "tests/unit/unique/world.hpp"
#include "tinykvm/machine/loop_region.hpp"

using namespace kvmserver::unique;
using tinykvm::EntropyFill;
using tinykvm::EntropyRegion;
using tinykvm::GuestVirt;

namespace {

// What Go's math/rand/v2 gives first for the seed 1, 2, ... 32.
constexpr std::array<std::uint64_t, 32> kGoBlock{
    0x1257b7014e379fd5, 0x69f11c3baa0effb6, 0x7a861df9cebc3801, 0xbd5ec6fbd6f40818, 0x3073aefa388b1417,
    0x409adb9f6db75415, 0x39b06545e32fa44a, 0x782cd83c2074e81f, 0x4f6840c0739cf39c, 0x1bd76138b934ad89,
    0xc009b062b53487ed, 0x539ec806af32c1fe, 0x1fc1d54ada88787a, 0x7d9dffcd0219fc9b, 0x79eb5acb67cdd52c,
    0x9da72e7faa82fcb5, 0x4a3f82d663654be4, 0x746dc0176ee9c5dc, 0xdecc9238c0dc8ec2, 0x3c93adbdedec1da2,
    0x8e2b2c24935b8d42, 0x6c10950f46599d24, 0x051d53d2d665a8ed, 0x06153457e2ca2556, 0x657d1d707a653255,
    0x8a44a0b060ba2b89, 0xd62bd0120cd7460a, 0x4029e9b4cd7d011d, 0xf3b4ac1bcd06204b, 0x85558b3bca9e29b5,
    0x196e1744f7d4fafb, 0x672fa7436756c930};

std::array<std::uint8_t, 32> counted() {
    std::array<std::uint8_t, 32> seed;
    for (std::size_t i = 0; i < seed.size(); ++i)
        seed[i] = static_cast<std::uint8_t>(i + 1);
    return seed;
}

void put_go(World& w, std::uint64_t at, std::uint32_t used) {
    w.put(at, kGoBlock);
    w.put(at + 256, counted());
    w.put(at + 288, std::array<std::uint32_t, 3>{used, 32, 0});
}

// A runtime.m with its g0, and the generator 0x300 behind its beginning.
void put_go_m(World& w, std::uint64_t m, std::uint64_t g0) {
    w.put(m, g0);
    w.put(g0 + 48, m);
    put_go(w, m + 0x300, 5);
}

TEST_CASE("Go: generators of threads and the global one, not those of the program") {
    World w("/bin/app");
    put_go_m(w, World::kHeap + 0x800, World::kHeap + 0x100);
    put_go_m(w, World::kData + 0x800, World::kData + 0x100);
    put_go(w, World::kData + 0x2000, 32); // runtime.globalRand: zeros in front, `init` behind
    w.put(World::kData + 0x2000 + 304, std::uint8_t{1});
    put_go(w, World::kHeap + 0x2000, 7); // rand.NewChaCha8(seed)
    put_go(w, World::kData + 0x3000, 7); // such a variable
    const auto regions = w.found();
    std::map<std::uint64_t, EntropyRegion> by_place;
    for (const auto& region : regions)
        by_place[region.at] = region;
    REQUIRE(regions.size() == 3 * 2 + 2); // key and index, of threads also cheaprand
    for (const std::uint64_t at : {World::kHeap + 0xb00, World::kData + 0xb00, World::kData + 0x2000}) {
        CHECK(by_place[at + 256].fill == EntropyFill::random);
        CHECK(by_place[at + 256].bytes == 32);
        CHECK(by_place[at + 288].constant == std::vector<std::uint8_t>{32, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0});
    }
}

TEST_CASE("Go: what differs from the block of its key in one bit is no generator") {
    World w("/bin/app");
    put_go_m(w, World::kHeap + 0x800, World::kHeap + 0x100);
    const std::size_t at =
        GENERATE(std::size_t{0xb00}, std::size_t{0xb00 + 255}, std::size_t{0xb00 + 256}, std::size_t{0xb00 + 287});
    CHECK(w.found().size() == 3);
    w.heap[at] ^= std::byte{1};
    CHECK(w.found().empty());
}

// What rand's StdRng gives first for the seed 1, 2, ... 32: ChaCha12.
constexpr std::array<std::uint32_t, 64> kRustBlocks{
    0xaa00158c, 0x8c5780c9, 0x90727417, 0xe414383c, 0x9281126f, 0x47e87fad, 0x53b1af21, 0xafae0da8,
    0x775a13c0, 0x41c667f2, 0xebc99b9c, 0xf7aa1cf4, 0x71f01e69, 0xc92d1903, 0x24e7543d, 0x9db3c278,
    0xbd094016, 0x207c2012, 0x5f7e2537, 0x0f7a6797, 0xfa2d21cc, 0xa5def467, 0xd55fdcad, 0xfe0e51d8,
    0xa1b6af72, 0x4b198e5c, 0xf5d30108, 0x23c337fb, 0x99b66d37, 0x963cb972, 0x41c10838, 0x62961ccc,
    0xa26e65a6, 0x4bacf204, 0xe409e96c, 0x0c2c5046, 0xc3695038, 0xd125d7fb, 0x192ea850, 0xf0401ccb,
    0xdfe0a335, 0xfc39e6b8, 0x28a2fa9a, 0x2e09d064, 0x5c5fbbd5, 0x06b286b9, 0x748ed450, 0xb9ec43f2,
    0xf51c61bd, 0x37c32f71, 0xd2316ee7, 0xe5b878a4, 0x53d94243, 0x8ca1d761, 0xff5130df, 0x264d2a4d,
    0x64575822, 0xeba98f31, 0x31da3696, 0x8280b223, 0xaf56fe85, 0x14b0b684, 0x0cb5de59, 0xc3938e52};

void put_rust(World& w, std::uint64_t at, bool index_first) {
    w.put(at - (index_first ? 272 : 256), kRustBlocks);
    w.put(at, counted());
    w.put(at + 32, std::array<std::uint64_t, 4>{4, 0, 65536, 65280});
    w.put(index_first ? at - 16 : at + 64, std::uint64_t{9});
}

TEST_CASE("Rust: ThreadRng, however the compiler orders its fields") {
    const bool index_first = GENERATE(false, true);
    World w("/bin/app");
    constexpr std::uint64_t at = World::kHeap + 0x400;
    put_rust(w, at, index_first);
    const auto regions = w.found();
    REQUIRE(regions.size() == 2);
    const auto& key = regions[index_first ? 1 : 0];
    const auto& index = regions[index_first ? 0 : 1];
    CHECK((key.at == at && key.bytes == 32 && key.fill == EntropyFill::random));
    CHECK((index.at == (index_first ? at - 16 : at + 64) &&
           index.constant == std::vector<std::uint8_t>{64, 0, 0, 0, 0, 0, 0, 0}));
    const int wrong = GENERATE(-200, 0, 31, 32, 40, 48);
    *w.host(at + static_cast<std::uint64_t>(wrong)) ^= std::byte{4};
    CHECK(w.found().empty());
}

TEST_CASE("Rust: a ThreadRng that has not been drawn from, not what merely has its numbers") {
    World w("/bin/app");
    constexpr std::uint64_t at = World::kHeap + 0x400;
    std::mt19937 random(5);
    std::array<std::uint32_t, 8> key;
    for (std::uint32_t& word : key)
        word = static_cast<std::uint32_t>(random());
    w.put(at, key);
    w.put(at + 32, std::array<std::uint64_t, 5>{0, 0, 65536, 65536, 64});
    CHECK(w.found().size() == 2);
    SECTION("it would be drawn from") { w.put(at + 64, std::uint64_t{9}); }
    SECTION("a length behind a capacity of 65536") { w.put(at + 56, std::uint64_t{12}); }
    SECTION("a pointer") { w.put(at + 8, World::kHeap + 0x123450); }
    SECTION("results") { w.put(at - 8, std::uint64_t{1}); }
    CHECK(w.found().empty());
}

// Any state of MT19937 that came out of another one.
std::array<std::uint32_t, 624> drawn_state() {
    std::mt19937 random(7);
    std::array<std::uint32_t, 624> mt;
    for (std::uint32_t& word : mt)
        word = static_cast<std::uint32_t>(random());
    for (std::size_t i = 0; i < 624; ++i) {
        const std::uint32_t y = (mt[i] & 0x80000000) | (mt[(i + 1) % 624] & 0x7fffffff);
        mt[i] = mt[(i + 397) % 624] ^ (y >> 1) ^ (y & 1 ? 0x9908b0df : 0);
    }
    return mt;
}

TEST_CASE("Ruby: a generator with a seed of 128 bits, not one that the program seeded") {
    World w("/usr/lib/libruby-3.1.so.3.1");
    constexpr std::uint64_t state = World::kHeap + 0x400, integer = World::kHeap + 0x100;
    w.put(integer, std::uint64_t{0x0a | 1 << 14 | 2 << 15}); // an embedded T_BIGNUM of two words
    w.put(state - 8, integer);
    w.put(state, drawn_state());
    w.put(state + 2496, state + 4 * 10);
    w.put(state + 2504, std::uint32_t{615});
    const auto regions = w.found();
    REQUIRE(regions.size() == 1);
    CHECK((regions[0].at == state && regions[0].bytes == 2496));
    SECTION("seeded with 42") { w.put(state - 8, std::uint64_t{42 << 1 | 1}); }
    SECTION("another count") { w.put(state + 2504, std::uint32_t{614}); }
    SECTION("no state of it") { *w.host(state) ^= std::byte{1}; }
    CHECK(w.found().empty());
}

// A type of CPython at `at`, its name behind it, of class `type`.
void put_type(World& w, std::uint64_t at, const char* name, std::uint64_t size) {
    w.put(at, std::array<std::uint64_t, 6>{1, World::kData + 0x100, 0, at + 400, size, 0});
    std::memcpy(w.host(at + 400), name, std::strlen(name) + 1);
}

TEST_CASE("CPython: an unseeded random.Random and the running loop's process number") {
    World w("/usr/bin/python3.11");
    put_type(w, World::kData + 0x100, "type", 880);
    constexpr std::uint64_t random_type = World::kData + 0x400, holder_type = World::kData + 0x800,
                            loop_type = World::kData + 0xc00;
    put_type(w, random_type, "_random.Random", 2520);
    put_type(w, holder_type, "_RunningLoopHolder", 32);
    put_type(w, loop_type, "Loop", 64);
    constexpr std::uint64_t random = World::kHeap + 0x400, holder = World::kHeap + 0x100, loop = World::kHeap + 0x200;
    w.put(random, std::array<std::uint64_t, 2>{1, random_type});
    w.put(random + 16, std::uint32_t{3});
    w.put(random + 20, drawn_state());
    w.put(loop, std::array<std::uint64_t, 2>{5, loop_type});
    w.put(holder, std::array<std::uint64_t, 4>{2, holder_type, loop, 1234});
    // The contents of a tuple look like an object: one reference, and then the type.
    w.put(World::kHeap + 0x300, std::array<std::uint64_t, 3>{1, random_type, holder_type});
    const auto regions = w.found();
    REQUIRE(regions.size() == 2);
    CHECK((regions[0].at == holder + 24 && regions[0].fill == EntropyFill::pid));
    CHECK((regions[1].at == random + 20 && regions[1].bytes == 2496));
    CHECK(tinykvm::knows_running_loop(regions));
    SECTION("freed memory is nothing, and no loop is as good as one that is known") {
        w.put(random, World::kHeap + 0x3000);
        w.put(holder, World::kHeap + 0x3000);
        const auto none = w.found();
        REQUIRE(none.size() == 1);
        CHECK((none[0].at == holder_type + 256 && none[0].fill == EntropyFill::constant &&
               none[0].constant == std::vector<std::uint8_t>(8)));
        CHECK(tinykvm::knows_running_loop(none));
        w.put(holder_type + 8, std::uint64_t{0});
    }
    SECTION("types that are another size") {
        w.put(random_type + 32, std::uint64_t{2000});
        w.put(holder_type + 32, std::uint64_t{24}); // since 3.12
    }
    CHECK(w.found().empty());
}

TEST_CASE("thousands of regions are cut off, and that is said") {
    World w("/bin/app");
    std::vector<std::byte> much(16 << 20);
    struct {
        kvmserver_entropy head;
        std::uint64_t random;
    } one{};
    kvmserver_entropy_place(&one.head, sizeof(one.random));
    static_assert(sizeof(one) == 48);
    const std::size_t count = GENERATE(std::size_t{100}, std::size_t{300'000});
    for (std::size_t i = 0; i < count; ++i)
        std::memcpy(much.data() + i * sizeof(one), &one, sizeof(one));
    constexpr GuestVirt begin(World::kHeap);
    const MemoryView view({{begin, begin + much.size(), 3, "", much}}, {{begin, much}});
    const Found found = find_entropy(view);
    CHECK(found.regions.size() == std::min<std::size_t>(count, 4096));
    CHECK(found.left_out.empty() == (count == 100));
}

TEST_CASE("of a region only what was touched is filled") {
    World w("/bin/app");
    kvmserver_entropy head;
    kvmserver_entropy_place(&head, 12000);
    w.put(World::kHeap + 64, head);
    const auto at = [](std::uint64_t offset) { return GuestVirt(World::kHeap + offset); };
    const MemoryView view({w.view.areas()[1]}, {{at(0), std::span(w.heap).first(4096)}},
                          {{at(0), at(4096)}, {at(8192), at(12288)}});
    const Found found = find_entropy(view);
    REQUIRE(found.regions.size() == 2);
    CHECK((found.regions[0].at == World::kHeap + 104 && found.regions[0].bytes == 4096 - 104));
    CHECK((found.regions[1].at == World::kHeap + 8192 && found.regions[1].bytes == 104 + 12000 - 8192));
}

TEST_CASE("hostile memory ends no finder") {
    for (const char* name : {"/usr/bin/python3.11", "/usr/lib/libruby.so", "/usr/lib/libjvm.so", "/usr/bin/php8.2"}) {
        World w(name);
        std::mt19937_64 random(3);
        constexpr std::array<std::uint64_t, 8> likely{
            World::kData, World::kHeap, World::kHeap + 4096, 32ull << 32, 65536, 1, 0, ~0ull};
        for (std::size_t at = 0; at < w.data.size(); at += 8) {
            w.put(World::kData + at, likely[random() % likely.size()] + (random() % 4) * 8);
            w.put(World::kHeap + at, likely[random() % likely.size()] + (random() % 4) * 8);
        }
        std::memcpy(w.data.data(), "\177ELF", 4);
        CHECK(w.found().size() < 1000);
    }
}

} // namespace
