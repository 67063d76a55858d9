#include <array>
#include <cstring>

#include "include/kvmserver/entropy.h"
#include "src/unique/finder.hpp"
#include "tests/catch.hpp"

using namespace kvmserver::unique;
using tinykvm::EntropyFill;
using tinykvm::GuestVirt;

namespace {

constexpr std::size_t kPage = 4096;

// Two pages that may be written to at 0x10000, and one that may not right behind them.
struct World {
    alignas(kPage) std::array<std::byte, 2 * kPage> data{};
    alignas(kPage) std::array<std::byte, kPage> constants{};
    MemoryView view{{{GuestVirt(0x10000), GuestVirt(0x12000), 3, "", data},
                     {GuestVirt(0x12000), GuestVirt(0x13000), 1, "/usr/lib/libx.so.1", constants}},
                    {{GuestVirt(0x10000), data}}};
};

TEST_CASE("a view gives what is there, and nothing beyond an area") {
    World w;
    w.data[8] = std::byte{7};
    std::memcpy(w.constants.data(), "name", 5);
    CHECK(w.view.value<std::uint64_t>(GuestVirt(0x10008)) == 7);
    CHECK(w.view.value<std::uint64_t>(GuestVirt(0x11ff8)) == 0);
    CHECK_FALSE(w.view.value<std::uint64_t>(GuestVirt(0x11ffc)).has_value()); // into the next area
    CHECK_FALSE(w.view.value<std::uint8_t>(GuestVirt(0x13000)).has_value());
    CHECK_FALSE(w.view.value<std::uint8_t>(GuestVirt(0xffff)).has_value());
    CHECK_FALSE(w.view.value<std::uint64_t>(GuestVirt(~std::uint64_t{0})).has_value());
    CHECK(w.view.bytes(GuestVirt(0x10000), ~std::size_t{0}).empty());
    CHECK(w.view.text(GuestVirt(0x12000)) == "name");
    CHECK(w.view.text(GuestVirt(0x12000), 4).empty()); // no NUL within four bytes
    CHECK(w.view.writable(GuestVirt(0x11fff), 1));
    CHECK_FALSE(w.view.writable(GuestVirt(0x11fff), 2));
    CHECK_FALSE(w.view.writable(GuestVirt(0x12000), 1));
    CHECK_FALSE(w.view.writable(GuestVirt(0x10000), 0));
    CHECK(w.view.file_named("libx.so") == &w.view.areas()[1]);
    CHECK(w.view.file_named("x.so") == nullptr);
}

TEST_CASE("of findings that overlap the first stays, and what is not writable is refused") {
    World w;
    Findings findings(w.view);
    CHECK(findings.add_random(GuestVirt(0x11000), 16, "first"));
    CHECK(findings.add_random(GuestVirt(0x1100f), 4, "second"));
    CHECK(findings.add_pid(GuestVirt(0x10010), "third"));
    CHECK_FALSE(findings.add_random(GuestVirt(0x11ff0), 17, "beyond"));
    CHECK_FALSE(findings.add_random(GuestVirt(0x12000), 8, "constant"));
    const auto regions = findings.take();
    REQUIRE(regions.size() == 2);
    CHECK(regions[0].source == "third");
    CHECK(regions[0].fill == EntropyFill::pid);
    CHECK(regions[1].source == "first");
}

struct Placed {
    kvmserver_entropy head;
    unsigned char random[32];
};

std::size_t regions_with(World& w, std::size_t at, const Placed& placed) {
    w.data.fill(std::byte{0});
    std::memcpy(w.data.data() + at, &placed, std::min(sizeof(placed), w.data.size() - at));
    return find_entropy(w.view).regions.size();
}

TEST_CASE("the mark of a program's own region is found where it is whole") {
    World w;
    Placed placed{};
    kvmserver_entropy_place(&placed.head, sizeof(placed.random));
    CHECK(regions_with(w, 0x100, placed) == 1);
    const auto regions = find_entropy(w.view).regions;
    REQUIRE(regions.size() == 1);
    CHECK(regions[0].at == 0x10100 + sizeof(placed.head));
    CHECK(regions[0].bytes == 32);
    CHECK(regions[0].fill == EntropyFill::random);
    CHECK(regions_with(w, 2 * kPage - sizeof(placed), placed) == 1);
    CHECK(regions_with(w, 2 * kPage - sizeof(placed) + 8, placed) == 0); // its end is elsewhere
    CHECK(regions_with(w, 2 * kPage - 16, placed) == 0);
    CHECK(regions_with(w, 0x104, placed) == 0); // not aligned
    for (std::size_t i = 0; i < 32; ++i) {
        Placed other = placed;
        other.head.mark[i] ^= 1;
        CHECK(regions_with(w, 0x100, other) == 0);
    }
    for (const std::uint32_t bytes : {0u, (1u << 20) + 1, ~0u}) {
        Placed other = placed;
        other.head.bytes = bytes;
        CHECK(regions_with(w, 0x100, other) == 0);
    }
    placed.head.reserved = 1;
    CHECK(regions_with(w, 0x100, placed) == 0);
}

} // namespace
