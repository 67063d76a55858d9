#include "tests/unit/memory/world.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

namespace {
struct Tables {
    kvm::Vm vm = kvm_device().create_vm();
    GuestRam ram = GuestRam::boot(vm, 16 * kMiB);
    PageTables tables{ram};
    std::uint64_t entry(std::uint64_t flags = pte::kPresent | pte::kUser) {
        const auto frame = ram.allocate(1);
        REQUIRE(frame);
        return frame_address(*frame).value | flags;
    }
    std::vector<std::uint64_t> mapped(std::uint64_t begin, std::uint64_t end) {
        std::vector<std::uint64_t> out;
        tables.update(GuestVirt(begin), GuestVirt(end), [&](GuestVirt at, std::uint64_t e) {
            out.push_back(at.value);
            return e;
        });
        return out;
    }
};
std::uint64_t& word(GuestRam& ram, std::uint64_t at) {
    return *reinterpret_cast<std::uint64_t*>(ram.host(GuestPhys(at)));
}
} // namespace

TEST_CASE("entries on both sides of every table border are told apart") {
    Tables t;
    std::vector<std::uint64_t> places;
    for (const std::uint64_t border : {1ull << 21, 1ull << 30, 1ull << 39, 3ull << 39, 1ull << 46})
        for (const std::uint64_t at : {border - kPageSize, border})
            places.push_back(at);
    places.push_back(0);
    places.push_back((1ull << 47) - kPageSize);
    std::map<std::uint64_t, std::uint64_t> want;
    for (const std::uint64_t at : places) {
        const std::uint64_t e = t.entry();
        REQUIRE(t.tables.set(GuestVirt(at), e));
        want[at] = e;
    }
    for (const auto& [at, e] : want) {
        CHECK(t.tables.get(GuestVirt(at)) == e);
        CHECK(t.tables.get(GuestVirt(at + 4095)) == e);
        if (!want.contains(at + kPageSize))
            CHECK(t.tables.get(GuestVirt(at + kPageSize)) == 0);
    }
    std::vector<std::uint64_t> all;
    for (const auto& [at, e] : want)
        all.push_back(at);
    CHECK(t.mapped(0, 1ull << 47) == all);
    CHECK(t.mapped((1ull << 30) - kPageSize, (1ull << 30) + kPageSize) ==
          std::vector<std::uint64_t>{(1ull << 30) - kPageSize, 1ull << 30});
    CHECK(t.mapped((1ull << 30) - kPageSize, 1ull << 30) == std::vector<std::uint64_t>{(1ull << 30) - kPageSize});
    CHECK(t.mapped(kPageSize, kPageSize).empty());
}

TEST_CASE("update writes what its function returns and skips what is not mapped") {
    Tables t;
    const std::uint64_t at = (1ull << 21) - 2 * kPageSize;
    for (int i = 0; i < 4; ++i)
        REQUIRE(t.tables.set(GuestVirt(at + i * kPageSize), t.entry()));
    t.tables.update(GuestVirt(at + kPageSize), GuestVirt(at + 3 * kPageSize),
                    [](GuestVirt, std::uint64_t) { return 0; });
    CHECK(t.mapped(0, 1ull << 40) == std::vector<std::uint64_t>{at, at + 3 * kPageSize});
    // Not present but kept: still mapped.
    t.tables.update(GuestVirt(at), GuestVirt(at + kPageSize),
                    [](GuestVirt, std::uint64_t e) { return (e & ~pte::kPresent) | pte::kLazy; });
    CHECK(t.mapped(0, 1ull << 40) == std::vector<std::uint64_t>{at, at + 3 * kPageSize});
}

TEST_CASE("set says when no frame is left for tables") {
    kvm::Vm vm = kvm_device().create_vm();
    GuestRam ram = GuestRam::boot(vm, 4 * kPageSize);
    PageTables tables(ram);
    CHECK(tables.set(GuestVirt(0), pte::kPresent));
    CHECK_FALSE(tables.set(GuestVirt(1ull << 39), pte::kPresent));
    CHECK(tables.set(GuestVirt(kPageSize), pte::kPresent));
    kvm::Vm full = kvm_device().create_vm();
    GuestRam none = GuestRam::boot(full, 0x10000);
    CHECK(none.allocate(16));
    CHECK_THROWS_AS(PageTables(none), HostError);
}

TEST_CASE("take_dirty finds the written leaves, once") {
    Tables t;
    std::vector<Frame> want, got;
    for (const std::uint64_t at : {0x1000ull, 0x200000ull, 0x40000000ull, 0x8000000000ull}) {
        const std::uint64_t e = t.entry(pte::kPresent | pte::kWrite | pte::kDirty);
        REQUIRE(t.tables.set(GuestVirt(at), e));
        want.push_back(pte::frame(e));
        REQUIRE(t.tables.set(GuestVirt(at + kPageSize), t.entry(pte::kPresent | pte::kWrite)));
    }
    const auto take = [&] {
        got.clear();
        t.tables.take_dirty([&](Frame f) { got.push_back(f); });
        return got;
    };
    CHECK(take() == want);
    CHECK(take().empty());
    // A dirty entry that is set below tables whose accessed bits were taken (a page that moved) is found too.
    const std::uint64_t moved = t.entry(pte::kPresent | pte::kWrite | pte::kDirty);
    REQUIRE(t.tables.set(GuestVirt(0x40002000), moved));
    CHECK(take() == std::vector<Frame>{pte::frame(moved)});
    // So is one that lost its rights after it was written to.
    const std::uint64_t hidden = t.entry(pte::kLazy | pte::kNone | pte::kDirty);
    REQUIRE(t.tables.set(GuestVirt(0x40003000), hidden));
    CHECK(take() == std::vector<Frame>{pte::frame(hidden)});
    CHECK(take().empty());
}

TEST_CASE("an entry that points beyond memory counts as absent, at every level") {
    // The last ones would be sound frame numbers if they were cut to 32 bits.
    const std::uint64_t outside =
        GENERATE(0x1000000ull, 0x7ffffffff000ull, 1ull << 44, (1ull << 44) + 0x1000, 1ull << 48, 0x000ffffffffff000ull);
    for (int level = 0; level < 4; ++level) {
        Tables t;
        const std::uint64_t at = 0x5555'5555'4000;
        REQUIRE(t.tables.set(GuestVirt(at), t.entry(pte::kPresent | pte::kDirty)));
        std::uint64_t table = t.tables.root().value;
        for (int l = 3; l > level; --l)
            table = word(t.ram, table + ((at >> (12 + 9 * l)) & 511) * 8) & pte::kAddress;
        std::uint64_t& entry = word(t.ram, table + ((at >> (12 + 9 * level)) & 511) * 8);
        entry = outside | pte::kPresent | pte::kWrite | pte::kUser | pte::kAccessed | pte::kDirty;
        CAPTURE(level, outside);
        CHECK(t.tables.get(GuestVirt(at)) == 0);
        CHECK(t.mapped(0, 1ull << 47).empty());
        int tables = 0, dirty = 0;
        t.tables.for_each_table([&](Frame f) {
            CHECK(t.ram.valid(f));
            ++tables;
        });
        CHECK(tables == (level == 0 ? 4 : 4 - level));
        t.tables.take_dirty([&](Frame) { ++dirty; });
        CHECK(dirty == 0);
        t.tables.set_present(GuestVirt(at));
        if (level > 0)
            CHECK_FALSE(t.tables.set(GuestVirt(at), t.entry()));
    }
}

TEST_CASE("tables that lead to each other in a circle end every walk") {
    Tables t;
    const std::uint64_t root = t.tables.root().value;
    for (std::uint64_t i = 0; i < 512; ++i)
        word(t.ram, root + i * 8) = root | pte::kPresent | pte::kAccessed | pte::kDirty;
    std::uint64_t tables = 0, dirty = 0;
    t.tables.for_each_table([&](Frame) { ++tables; });
    CHECK(tables <= t.ram.high());
    t.tables.take_dirty([&](Frame) { ++dirty; });
    CHECK(dirty <= 512 * t.ram.high());
    CHECK(t.tables.get(GuestVirt(0x1234000)) != 0);
    CHECK(t.tables.set(GuestVirt(0x1234000), t.entry()));
}

TEST_CASE("a clone's journal holds what its image's entries were") {
    BootWorld boot;
    const std::uint64_t at = 0x10000000;
    REQUIRE(boot.space.mmap(at, 8 * kPageSize, kRw, kAnon | MAP_FIXED, nullptr, 0) == static_cast<std::int64_t>(at));
    REQUIRE(boot.space.store(GuestVirt(at), 1ull));
    const auto snapshot = boot.freeze();
    CloneWorld clone(snapshot);
    PageTables& tables = clone.space.tables();
    const std::uint64_t before = tables.get(GuestVirt(at));
    REQUIRE(before != 0);
    tables.update(GuestVirt(at), GuestVirt(at + kPageSize),
                  [](GuestVirt, std::uint64_t e) { return e & ~pte::kWrite; });
    tables.update(GuestVirt(at), GuestVirt(at + kPageSize), [](GuestVirt, std::uint64_t) { return 0; });
    REQUIRE(tables.journal().size() == 2);
    CHECK(tables.journal()[0].before == before);
    // Tables of its own need no journal.
    REQUIRE(tables.set(GuestVirt(at + (1ull << 40)), before));
    const std::size_t entries = tables.journal().size();
    CHECK(entries == 3); // the root's entry
    REQUIRE(tables.set(GuestVirt(at + (1ull << 40)), 0));
    CHECK(tables.journal().size() == entries);
    CHECK(clone.space.reset());
    CHECK(tables.get(GuestVirt(at)) == before);
    CHECK(tables.get(GuestVirt(at + (1ull << 40))) == 0);
    CHECK(tables.journal().empty());
    CHECK_FALSE(clone.space.reset());
}

TEST_CASE("changing the same entries over and over takes no more memory, and still is undone") {
    BootWorld boot;
    const std::uint64_t at = 0x10000000, bytes = 64 * kPageSize;
    REQUIRE(boot.space.mmap(at, bytes, kRw, kAnon | MAP_FIXED | MAP_POPULATE, nullptr, 0) > 0);
    REQUIRE(boot.space.store(GuestVirt(at), 7ull));
    CloneWorld clone(boot.freeze());
    const std::uint64_t before = clone.space.tables().get(GuestVirt(at + 5 * kPageSize));
    for (int i = 0; i < 5000; ++i) {
        REQUIRE(clone.space.mprotect(at, bytes, i % 2 ? kRw : PROT_READ) == 0);
        REQUIRE(clone.space.tables().journal().size() <= (64 << 10));
    }
    clone.space.mprotect(at, bytes, PROT_NONE);
    clone.reset();
    CHECK(clone.space.tables().get(GuestVirt(at + 5 * kPageSize)) == before);
    CHECK_FALSE(clone.difference());
}

TEST_CASE("tables that a clone adds count as its memory, each invocation anew") {
    BootWorld boot;
    constexpr std::uint64_t room = 64;
    CloneWorld clone(boot.freeze(), room * kPageSize);
    // Each page needs three tables of its own.
    const auto fill = [&] {
        std::uint64_t pages = 0;
        while (pages < 200 && clone.space.tables().set(GuestVirt(0x100'0000'0000 + (pages << 39)), pte::kPresent))
            ++pages;
        return pages;
    };
    CHECK(fill() == room / 3);
    CHECK_FALSE(clone.ram.allocate(2));
    clone.reset();
    CHECK(clone.ram.allocate(room));
    CHECK(fill() == 0);
    clone.reset();
    CHECK(fill() == room / 3); // the same tables again
}
