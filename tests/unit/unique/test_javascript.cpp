// V8 and JavaScriptCore in memory made up here: what must be found, and near misses that must be left alone.
#include <algorithm>
#include <bit>
#include <ctime>
#include <numeric>
#include <random>

#include "src/unique/xorshift128.hpp"
#include "src/unique/xorshift128_walk.hpp"
#include "tests/catch.hpp"
#include "tests/unit/unique/world.hpp"

using namespace kvmserver::unique;
using tinykvm::EntropyFill;
using tinykvm::EntropyRegion;

namespace {

constexpr std::uint64_t smi(std::uint64_t value) { return value << 32; }
constexpr std::uint64_t tagged(std::uint64_t at) { return at + 1; }

std::vector<EntropyRegion> of(const std::vector<EntropyRegion>& regions, std::string_view source) {
    std::vector<EntropyRegion> kept;
    std::copy_if(regions.begin(), regions.end(), std::back_inserter(kept),
                 [&](const EntropyRegion& region) { return region.source.starts_with(source); });
    return kept;
}

std::array<std::uint8_t, 256> random_bytes(unsigned seed) {
    std::mt19937 random(seed);
    std::array<std::uint8_t, 256> bytes;
    for (auto& byte : bytes)
        byte = static_cast<std::uint8_t>(random());
    return bytes;
}

// A V8 heap with 64-bit slots: one native context that has drawn, and the map of everything else.
struct V8 : World {
    static constexpr std::uint64_t kMetaMap = kHeap + 0x100, kMap = kHeap + 0x180, kContextMap = kHeap + 0x200,
                                   kContext = kHeap + 0x400;
    static constexpr std::uint64_t kState = kHeap + 0xc00, kCache = kHeap + 0xd00, kLeft = kContext + 8 * 52;

    V8() : World("/usr/bin/node") {
        for (const std::uint64_t map : {kMetaMap, kMap, kContextMap})
            put(map, tagged(kMetaMap));
        put(kContextMap + 8 * 4, tagged(kContext));
        put(kContext, std::array<std::uint64_t, 4>{tagged(kContextMap), smi(160), tagged(kMap), 0});
        put(kLeft, std::array<std::uint64_t, 3>{smi(7), tagged(kState), tagged(kCache)});
        Xorshift128 state{0x123456789abcdef1, 0xfedcba9876543210};
        put(kCache, std::array<std::uint64_t, 2>{tagged(kMap), smi(64)});
        for (std::uint64_t i = 0; i < 64; ++i) {
            state.step();
            put(kCache + 16 + 8 * i, static_cast<double>(state.s0 >> 11) * 0x1.0p-53);
        }
        put(kState, std::array<std::uint64_t, 2>{tagged(kMap), smi(16)});
        put(kState + 16, state);
    }
    void put_string(std::uint64_t at, std::string_view text) {
        put(at, tagged(kMap));
        put(at + 8, std::array<std::uint32_t, 2>{0x1234567, static_cast<std::uint32_t>(text.size())});
        std::memcpy(host(at + 16), text.data(), text.size());
    }
};

TEST_CASE("V8: Math.random of a context") {
    V8 w;
    const auto regions = of(w.found(), "V8 Math.random");
    REQUIRE(regions.size() == 2);
    CHECK((regions[0].at == V8::kLeft && regions[0].constant == std::vector<std::uint8_t>(8)));
    CHECK((regions[1].at == V8::kState + 16 && regions[1].bytes == 16 && regions[1].fill == EntropyFill::random));
    SECTION("a number that the state did not lead to") { *w.host(V8::kCache + 16 + 8 * 20) ^= std::byte{1}; }
    SECTION("another state") { *w.host(V8::kState + 20) ^= std::byte{1}; }
    SECTION("no native context") { w.put(V8::kContextMap + 8 * 4, tagged(V8::kMap)); }
    SECTION("more left than there are") { w.put(V8::kLeft, smi(65)); }
    CHECK(of(w.found(), "V8 Math.random").empty());
}

std::uint64_t murmur3(std::uint64_t h) {
    h = (h ^ h >> 33) * 0xff51afd7ed558ccd;
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53;
    return h ^ h >> 33;
}

TEST_CASE("V8: the generator of an isolate") {
    V8 w;
    constexpr std::uint64_t at = V8::kHeap + 0x2010, seed = 0x8146e0619fca016f;
    Xorshift128 state{murmur3(seed), murmur3(~murmur3(seed))};
    for (int i = GENERATE(0, 138, 100'000); i > 0; --i)
        state.step();
    w.put(at, seed);
    w.put(at + 8, state);
    w.put(World::kData + 0x200, at);
    const auto regions = of(w.found(), "V8, generator");
    REQUIRE(regions.size() == 1);
    CHECK((regions[0].at == at + 8 && regions[0].bytes == 16 && regions[0].fill == EntropyFill::random));
    SECTION("nothing leads there") { w.put(World::kData + 0x200, at + 8); }
    SECTION("another seed") { *w.host(at) ^= std::byte{1}; }
    SECTION("another state") { *w.host(at + 12) ^= std::byte{1}; }
    SECTION("no V8") { w.put(V8::kContextMap, std::uint64_t{0}); }
    CHECK(of(w.found(), "V8, generator").empty());
}

TEST_CASE("xorshift128+: what leads to what") {
    const Xorshift128Walk walk;
    const Xorshift128 from{1, 2};
    Xorshift128 to = from;
    CHECK(walk.leads_to(from, to));
    for (std::uint64_t i = 0; i < Xorshift128Walk::kSteps - 1; ++i)
        to.step();
    CHECK(walk.leads_to(from, to));
    CHECK_FALSE(walk.leads_to(to, from));
    to.step();
    CHECK_FALSE(walk.leads_to(from, to));
}

TEST_CASE("V8: a pool that a minified script describes") {
    V8 w;
    constexpr std::uint64_t used_name = V8::kHeap + 0x1000, pool_name = V8::kHeap + 0x1040, info = V8::kHeap + 0x1080,
                            context = V8::kHeap + 0x1100;
    constexpr std::uint64_t array = V8::kHeap + 0x1200, pool = V8::kHeap + 0x1800, script = V8::kHeap + 0x1a00,
                            used = context + 8 * 5;
    w.put_string(script, "function g(){return d>f.length-16&&((0,L.randomFillSync)(f),d=0),f.slice(d,d+=16)}");
    w.put_string(pool_name, "f");
    w.put_string(used_name, "d");
    w.put(info, std::array<std::uint64_t, 8>{tagged(V8::kMap), smi(77), smi(0), smi(2), tagged(pool_name),
                                             tagged(used_name), smi(1), smi(1)});
    w.put(context, std::array<std::uint64_t, 6>{tagged(V8::kMap), smi(4), tagged(info), tagged(V8::kContext),
                                                tagged(array), smi(48)});
    w.put(array, std::array<std::uint64_t, 8>{tagged(V8::kMap), tagged(V8::kMap), tagged(V8::kMap), tagged(V8::kMap), 0,
                                              256, 256, pool});
    w.put(pool, random_bytes(1));
    const auto regions = of(w.found(), "pool of random bytes");
    REQUIRE(regions.size() == 1);
    CHECK((regions[0].at == used && regions[0].constant == std::vector<std::uint8_t>{0, 0, 0, 0, 0, 0, 0, 0x20}));
    SECTION("no such code") { *w.host(script + 16 + 20) ^= std::byte{1}; }
    SECTION("used by other portions") { w.put(used, smi(47)); }
    SECTION("more used than there is") { w.put(used, smi(272)); }
    SECTION("no index") { w.put(used, tagged(array)); }
    SECTION("contents that are no random bytes") {
        std::array<std::uint8_t, 256> text;
        text.fill('a');
        w.put(pool, text);
    }
    SECTION("two scopes with these variables, of which one is another's") {
        w.put(V8::kHeap + 0x1700, std::array<std::uint64_t, 6>{tagged(V8::kMap), smi(4), tagged(info),
                                                               tagged(V8::kContext), tagged(array), smi(48)});
    }
    CHECK(of(w.found(), "pool of random bytes").empty());
}

// WTF's WeakRandom after some draws.
void put_weak_random(World& w, std::uint64_t at, std::uint32_t seed, int draws) {
    Xorshift128 state{seed, seed};
    for (int i = 0; i <= draws; ++i)
        state.step();
    w.put(at, std::uint64_t{seed});
    w.put(at + 8, state);
}

TEST_CASE("JavaScriptCore: Math.random of a global object") {
    World w("/usr/bin/bun");
    constexpr std::uint64_t at = World::kHeap + 0x800;
    const int draws = GENERATE(0, 3, 60, 10'000);
    put_weak_random(w, at, 0xdeadbeef, draws);
    put_weak_random(w, World::kHeap + 0x1800, 0x12345678,
                    1); // another: those with many draws are followed where there is JavaScriptCore
    const auto regions = of(w.found(), "JavaScriptCore Math.random");
    REQUIRE(regions.size() == 2);
    CHECK((regions[0].at == at + 8 && regions[0].bytes == 16));
    SECTION("another state") { *w.host(at + 12) ^= std::byte{1}; }
    SECTION("seeded by the program") { put_weak_random(w, at, 42, draws); }
    CHECK(of(w.found(), "JavaScriptCore Math.random").size() == 1);
}

TEST_CASE("JavaScriptCore: what seeds Math.random of later global objects") {
    World w("/usr/bin/bun");
    put_weak_random(w, World::kHeap + 0x800, 0xdeadbeef, 1);
    constexpr std::uint64_t state = World::kData + 0x40b, left = World::kData + 0x50c;
    std::array<std::uint8_t, 256> bytes;
    std::iota(bytes.begin(), bytes.end(), 0);
    std::shuffle(bytes.begin(), bytes.end(), std::mt19937(5));
    w.put(state, bytes);
    w.put(left, std::uint32_t{1'599'000});
    const auto regions = of(w.found(), "JavaScriptCore, seeds");
    REQUIRE(regions.size() == 1);
    CHECK((regions[0].at == left && regions[0].constant == std::vector<std::uint8_t>(4)));
    SECTION("no permutation") { *w.host(state + 9) = *w.host(state + 10); }
    SECTION("more left than it ever has") { w.put(left, std::uint32_t{1'600'001}); }
    SECTION("nothing left") { w.put(left, std::uint32_t{0}); }
    SECTION("no JavaScriptCore") { *w.host(World::kHeap + 0x808) ^= std::byte{1}; }
    CHECK(of(w.found(), "JavaScriptCore, seeds").empty());
}

TEST_CASE("Bun: the pool of random bytes") {
    World w("/usr/bin/bun");
    put_weak_random(w, World::kHeap + 0x800, 0xdeadbeef, 1);
    constexpr std::uint64_t pool = World::kHeap + 0x2000;
    for (std::uint64_t i = 0; i < 8; ++i)
        w.put(pool + 256 * i, random_bytes(static_cast<unsigned>(i)));
    w.put(pool + 2048, std::array<std::uint64_t, 3>{160, 0, 0});
    w.put(World::kData + 0x300, pool);
    const auto regions = of(w.found(), "Bun");
    REQUIRE(regions.size() == 1);
    CHECK((regions[0].at == pool + 2048 && regions[0].constant == std::vector<std::uint8_t>{0, 8, 0, 0, 0, 0, 0, 0}));
    SECTION("nothing leads there") { w.put(World::kData + 0x300, pool + 64); }
    SECTION("more used than there is") { w.put(pool + 2048, std::uint64_t{2049}); }
    SECTION("text") { std::memset(w.host(pool + 512), 'a', 64); }
    CHECK(of(w.found(), "Bun").empty());
}

TEST_CASE("memory that keeps finders of JavaScript busy") {
    V8 v8; // so that they look at all
    put_weak_random(v8, World::kHeap + 0x3000, 0xdeadbeef, 1);
    std::vector<std::byte> large((16 << 20) + 4096);
    const auto pages =
        std::span(large).subspan((4096 - reinterpret_cast<std::uintptr_t>(large.data()) % 4096) % 4096, 16 << 20);
    const auto repeat = [&](std::span<const std::byte> unit) {
        for (std::size_t at = 0; at + unit.size() <= pages.size(); at += unit.size())
            std::copy(unit.begin(), unit.end(), pages.begin() + static_cast<std::ptrdiff_t>(at));
    };
    const auto text = [&](std::string_view unit) { repeat(std::as_bytes(std::span(unit))); };
    SECTION("calls") { text("p>b.length-16&&(x.randomFillSync(b),p=0);"); }
    SECTION("other names") {
        text("import{randomFillSync as a,randomFillSync as b,randomFillSync as c}a(a(a(b(b(c(c(");
    }
    SECTION("blanks") { text("randomFillSync                                                               "); }
    SECTION("permutations with numbers behind") {
        std::array<std::uint8_t, 256> unit;
        std::iota(unit.begin(), unit.end(), 0);
        std::shuffle(unit.begin(), unit.end(), std::mt19937(5));
        repeat(std::as_bytes(std::span(unit)));
        for (std::size_t at = 256; at + 4 < pages.size(); at += 260)
            std::fill_n(pages.begin() + static_cast<std::ptrdiff_t>(at + 2), 2, std::byte{0});
    }
    SECTION("random words that something leads to") {
        std::mt19937_64 random(3);
        for (std::size_t at = 0; at + 8 <= pages.size(); at += 8) {
            const std::uint64_t word = at % 64 == 0 ? 0x7000000000 + random() % pages.size() / 16 * 16 : random();
            std::memcpy(pages.data() + at, &word, 8);
        }
    }
    const auto seconds = [&](std::size_t bytes) {
        const auto some = std::span<const std::byte>(pages).first(bytes);
        std::vector<Area> areas = v8.view.areas();
        std::vector<Written> written = v8.view.written();
        const tinykvm::GuestVirt at(0x7000000000);
        areas.insert(areas.begin() + 1, {at, at + some.size(), 3, "", some});
        written.insert(written.begin() + 1, {at, some});
        const std::clock_t begin = std::clock();
        const Found found = find_entropy(MemoryView(areas, written));
        CHECK(found.regions.size() <= 4096);
        return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    };
    // In proportion to the memory, not to its square. By the clock only what is far from that can be told.
    constexpr std::size_t kTimes = 8;
    const double eighth = seconds(pages.size() / kTimes);
    CHECK(seconds(pages.size()) < 4 * kTimes * eighth + 10);
}

} // namespace
