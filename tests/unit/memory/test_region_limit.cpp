// No way of splitting a mapping leads to more than 65,530 of them, and what is refused for it leaves
// everything as it was.
#include "tests/unit/memory/world.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

namespace {

constexpr std::uint64_t kAt = 0x10'0000'0000, kLarge = 0x20'0000'0000, kElsewhere = 0x30'0000'0000;
constexpr std::uint64_t page_bytes(std::uint64_t n) { return n * kPageSize; }

// A mapping of 1,000 pages at kLarge, a heap, and single pages until `left` more mappings are possible.
struct Full : BootWorld {
    explicit Full(std::size_t left) {
        space.set_brk(0x1000'0000);
        REQUIRE(space.mmap(kLarge, page_bytes(1000), PROT_READ, kAnon | MAP_FIXED, nullptr, 0) > 0);
        for (std::uint64_t at = kAt; space.regions().size() + left < AddressSpace::kMaxRegions; at += page_bytes(2))
            REQUIRE(space.mmap(at, kPageSize, PROT_READ, kAnon | MAP_FIXED, nullptr, 0) > 0);
    }
    std::size_t count() const { return space.regions().size(); }
    bool mapped(std::uint64_t at) const {
        const auto next = space.regions().upper_bound(at);
        return next != space.regions().begin() && at < std::prev(next)->second.end;
    }
};

// Does it for the 2nd, 5th, 8th ... page at kLarge; how often it was done before it was refused, which it
// must be.
template <class Fn>
std::uint64_t until_refused(Full& w, Fn&& split) {
    for (std::uint64_t n = 0; n < 300; ++n) {
        const std::int64_t result = split(kLarge + page_bytes(1 + 3 * n), n);
        REQUIRE(w.count() <= AddressSpace::kMaxRegions);
        if (result == -ENOMEM) {
            for (std::uint64_t p = 1 + 3 * n; p < 1000; ++p) // nothing of it was done
                REQUIRE(w.mapped(kLarge + page_bytes(p)));
            for (int again = 0; again < 1000; ++again)
                REQUIRE(split(kLarge + page_bytes(1 + 3 * n), n) == -ENOMEM);
            REQUIRE(w.count() <= AddressSpace::kMaxRegions);
            return n;
        }
        REQUIRE(result >= 0);
    }
    FAIL("never refused");
    return 0;
}

} // namespace

TEST_CASE("mremap of page_bytes out of a mapping's middle stops at the limit of mappings") {
    Full w(10);
    const std::uint64_t done = until_refused(w, [&](std::uint64_t at, std::uint64_t n) {
        return w.space.mremap(at, kPageSize, kPageSize, MREMAP_MAYMOVE | MREMAP_FIXED, kElsewhere + page_bytes(2 * n));
    });
    CHECK(done >= 3);
    CHECK_FALSE(w.mapped(kElsewhere + page_bytes(2 * done)));
}

TEST_CASE("mremap onto the middle of another mapping stops at the limit") {
    Full w(12);
    REQUIRE(w.space.mmap(kElsewhere, page_bytes(1000), kRw, kAnon | MAP_FIXED, nullptr, 0) > 0);
    const std::uint64_t done = until_refused(w, [&](std::uint64_t at, std::uint64_t n) {
        return w.space.mremap(at, kPageSize, kPageSize, MREMAP_MAYMOVE | MREMAP_FIXED,
                              kElsewhere + page_bytes(1 + 3 * n));
    });
    CHECK(done >= 2);
    CHECK(w.mapped(kElsewhere + page_bytes(1 + 3 * done)));
}

TEST_CASE("mremap that moves what grows stops at the limit") {
    Full w(10);
    until_refused(w, [&](std::uint64_t at, std::uint64_t) {
        return w.space.mremap(at, kPageSize, page_bytes(2), MREMAP_MAYMOVE, 0);
    });
}

TEST_CASE("mremap that shrinks in a mapping's middle says when it cannot") {
    Full w(10);
    until_refused(
        w, [&](std::uint64_t at, std::uint64_t) { return w.space.mremap(at, page_bytes(2), page_bytes(1), 0, 0); });
}

TEST_CASE("munmap, mprotect, madvise and mmap in a mapping's middle stop at the limit") {
    SECTION("munmap") {
        Full w(10);
        CHECK(until_refused(w, [&](std::uint64_t at, std::uint64_t) { return w.space.munmap(at, kPageSize); }) == 10);
    }
    SECTION("mprotect") {
        Full w(10);
        until_refused(w, [&](std::uint64_t at, std::uint64_t) { return w.space.mprotect(at, kPageSize, kRw); });
    }
    SECTION("madvise") {
        Full w(10);
        until_refused(w,
                      [&](std::uint64_t at, std::uint64_t) { return w.space.madvise(at, kPageSize, MADV_WIPEONFORK); });
    }
    SECTION("mmap") {
        Full w(10);
        until_refused(w, [&](std::uint64_t at, std::uint64_t) {
            return w.space.mmap(at, kPageSize, kRw, kAnon | MAP_FIXED, nullptr, 0);
        });
    }
}

TEST_CASE("a heap of pieces stops at the limit") {
    Full w(10);
    std::uint64_t end = 0x1000'0000;
    for (int n = 0; n < 100; ++n) {
        const std::int64_t got = w.space.brk(end + page_bytes(2));
        REQUIRE(w.count() <= AddressSpace::kMaxRegions);
        if (static_cast<std::uint64_t>(got) == end) {
            CHECK(n >= 8);
            return;
        }
        end += page_bytes(2);
        REQUIRE(w.space.munmap(end - kPageSize, kPageSize) == 0); // or it would become one with the next
    }
    FAIL("never refused");
}

TEST_CASE("a mapping that grows down by faults keeps to the limit") {
    Full w(3);
    REQUIRE(w.space.mmap(kElsewhere, kPageSize, kRw, kAnon | MAP_FIXED | MAP_GROWSDOWN, nullptr, 0) > 0);
    for (std::uint64_t at = kElsewhere - kPageSize; at > kElsewhere - page_bytes(20); at -= kPageSize) {
        w.space.fault(GuestVirt(at), FaultAccess::write);
        (void)w.space.mprotect(at, kPageSize, PROT_READ); // or it would stay one mapping
        REQUIRE(w.count() <= AddressSpace::kMaxRegions);
    }
}
