// Address spaces: the calls that change mappings.
#include <set>

#include "tests/unit/memory/mapping.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

TEST_CASE("mmap: hint, fixed, noreplace") {
    BootWorld w;
    CHECK(map(w.space, kAt, 4, kRw, 0) == kAt); // a free hint is taken
    const std::int64_t other = map(w.space, kAt + pages(2), 4, kRw, 0);
    CHECK(other > 0);
    CHECK(static_cast<std::uint64_t>(other) >= kAt + pages(4));
    CHECK(map(w.space, kAt + pages(3), 4, kRw, MAP_FIXED_NOREPLACE) == -EEXIST);
    CHECK(map(w.space, kAt - pages(1), 2, kRw, MAP_FIXED_NOREPLACE) == -EEXIST);
    CHECK(map(w.space, kAt - pages(1), 6, kRw, MAP_FIXED_NOREPLACE) == -EEXIST);
    CHECK(map(w.space, kAt + pages(4), 1, PROT_READ, MAP_FIXED_NOREPLACE) == static_cast<std::int64_t>(kAt + pages(4)));
    REQUIRE(w.space.store(GuestVirt(kAt), 5ull));
    CHECK(map(w.space, kAt, 1) == kAt); // replaces: zero again
    CHECK(load(w.space, kAt) == 0);
    CHECK(canonical(w.space));
    // The search goes down from the top.
    const std::int64_t top = map(w.space, 0, 1, kRw, 0);
    CHECK(map(w.space, 0, 1, kRw, 0) == top - static_cast<std::int64_t>(kPageSize));
    CHECK(map(w.space, 1, 1, kRw, 0) == top - static_cast<std::int64_t>(pages(2))); // page 0 is no hint to follow
}

TEST_CASE("mmap: arguments of no sense") {
    BootWorld w;
    AddressSpace& s = w.space;
    CHECK(s.mmap(0, 0, kRw, kAnon, nullptr, 0) == -EINVAL);
    CHECK(s.mmap(0, ~0ull, kRw, kAnon, nullptr, 0) == -ENOMEM);
    CHECK(s.mmap(0, ~0ull - 100, kRw, kAnon | MAP_FIXED, nullptr, 0) == -ENOMEM);
    CHECK(s.mmap(kAt, layout::kUserMax, kRw, kAnon | MAP_FIXED, nullptr, 0) == -ENOMEM);
    CHECK(s.mmap(kAt + 1, kPageSize, kRw, kAnon | MAP_FIXED, nullptr, 0) == -EINVAL);
    CHECK(s.mmap(layout::kUserMax - kPageSize, pages(2), kRw, kAnon | MAP_FIXED, nullptr, 0) == -ENOMEM);
    CHECK(s.mmap(layout::kShared, kPageSize, kRw, kAnon | MAP_FIXED, nullptr, 0) == -ENOMEM);
    CHECK(s.mmap(~0ull << 12, kPageSize, kRw, kAnon | MAP_FIXED, nullptr, 0) == -ENOMEM);
    CHECK(s.mmap(0x1000, kPageSize, kRw, kAnon | MAP_FIXED, nullptr, 0) == -EPERM);
    CHECK(s.mmap(0, kPageSize, kRw, kAnon, nullptr, 1) == -EINVAL);
    CHECK(s.mmap(0, kPageSize, 0x100, kAnon, nullptr, 0) == -EINVAL);
    CHECK(s.mmap(layout::kShared, kPageSize, kRw, kAnon, nullptr, 0) > 0); // a hint only
    CHECK(s.mmap(~0ull, kPageSize, kRw, kAnon, nullptr, 0) > 0);
    CHECK(s.regions().rbegin()->second.end <= layout::kMmapTop);
    CHECK(canonical(s));
}

TEST_CASE("mmap: the address space's limit") {
    BootWorld w(8 * kMiB, 4 * kMiB);
    CHECK(w.space.mmap(0, 3 * kMiB, kRw, kAnon, nullptr, 0) > 0);
    CHECK(w.space.mmap(0, 2 * kMiB, kRw, kAnon, nullptr, 0) == -ENOMEM);
    const std::int64_t at = w.space.mmap(0, 1 * kMiB, kRw, kAnon, nullptr, 0);
    CHECK(at > 0);
    CHECK(w.space.mmap(0, kPageSize, kRw, kAnon, nullptr, 0) == -ENOMEM);
    CHECK(w.space.mremap(static_cast<std::uint64_t>(at), kMiB, 2 * kMiB, MREMAP_MAYMOVE, 0) == -ENOMEM);
    w.space.set_brk(0x20000000);
    CHECK(w.space.brk(0x20001000) == 0x20000000);
    CHECK(w.space.munmap(static_cast<std::uint64_t>(at), kMiB) == 0);
    CHECK(w.space.address_space_bytes() == 3 * kMiB);
    CHECK(w.space.brk(0x20001000) == 0x20001000);
}

TEST_CASE("regions have a limit, as they have in Linux") {
    BootWorld w(8 * kMiB, 1ull << 40);
    std::uint64_t at = kAt, made = 0;
    while (map(w.space, at, 1) > 0 && made < 100'000) {
        at += pages(2);
        ++made;
    }
    CHECK(made > 60'000);
    CHECK(made < 66'000);
    CHECK(map(w.space, at, 1) == -ENOMEM);
    CHECK(w.space.mprotect(kAt, kPageSize, PROT_READ) == -ENOMEM);
    CHECK(w.space.munmap(kAt, kPageSize) == 0); // giving back is always possible
    CHECK(w.space.munmap(kAt, pages(20)) == 0);
    CHECK(map(w.space, at, 3) > 0);
    CHECK(w.space.munmap(at + kPageSize, kPageSize) == 0);
}

TEST_CASE("munmap: holes, parts, nothing") {
    BootWorld w;
    REQUIRE(map(w.space, kAt, 3) > 0);
    REQUIRE(map(w.space, kAt + pages(5), 3) > 0);
    for (const std::uint64_t p : {0, 1, 2, 5, 6, 7})
        REQUIRE(w.space.store(GuestVirt(kAt + pages(p)), p + 1));
    CHECK(w.space.munmap(kAt + pages(3), pages(2)) == 0); // only a hole
    CHECK(w.space.regions().size() == 2);
    CHECK(w.space.munmap(kAt + pages(1), pages(5)) == 0); // over both
    CHECK(load(w.space, kAt) == 1);
    CHECK_FALSE(w.space.load<char>(GuestVirt(kAt + pages(1))));
    CHECK_FALSE(w.space.load<char>(GuestVirt(kAt + pages(5))));
    CHECK(load(w.space, kAt + pages(6)) == 7);
    CHECK(w.space.address_space_bytes() == pages(3));
    CHECK(w.space.munmap(kAt + pages(6) + 1, kPageSize) == -EINVAL);
    CHECK(w.space.munmap(kAt, 0) == -EINVAL);
    CHECK(w.space.munmap(kAt, ~0ull) == -EINVAL);
    CHECK(w.space.munmap(layout::kUserMax, kPageSize) == -EINVAL);
    CHECK(w.space.munmap(layout::kUserMax - kPageSize, pages(2)) == -EINVAL);
    CHECK(w.space.munmap(kAt + pages(7), 1) == 0); // a byte is a page
    CHECK_FALSE(w.space.load<char>(GuestVirt(kAt + pages(7))));
    CHECK(w.space.munmap(0, layout::kUserMax) == 0);
    CHECK(w.space.regions().empty());
    CHECK(w.space.address_space_bytes() == 0);
    std::uint64_t tables = 0;
    w.space.tables().for_each_table([&](Frame) { ++tables; });
    CHECK(w.ram.bytes_in_use() == pages(tables)); // no frame was lost
}

TEST_CASE("mprotect: parts of regions, joined again") {
    BootWorld w;
    REQUIRE(map(w.space, kAt, 8) > 0);
    for (std::uint64_t p = 0; p < 8; ++p)
        REQUIRE(w.space.store(GuestVirt(kAt + pages(p)), p));
    CHECK(w.space.mprotect(kAt + pages(2), pages(3), PROT_READ) == 0);
    CHECK(w.space.regions().size() == 3);
    CHECK_FALSE(w.space.store(GuestVirt(kAt + pages(2)), 9ull));
    CHECK(w.space.store(GuestVirt(kAt + pages(5)), 5ull));
    CHECK(load(w.space, kAt + pages(3)) == 3);
    CHECK(w.space.mprotect(kAt + pages(1), pages(6), PROT_NONE) == 0);
    CHECK_FALSE(w.space.load<char>(GuestVirt(kAt + pages(3))));
    CHECK(w.space.fault(GuestVirt(kAt + pages(3)), FaultAccess::read) == FaultOutcome::not_allowed);
    CHECK(w.space.mprotect(kAt, pages(8), kRw) == 0);
    CHECK(w.space.regions().size() == 1);
    for (std::uint64_t p = 0; p < 8; ++p)
        CHECK(load(w.space, kAt + pages(p)) == p); // none was lost
    CHECK(w.space.fault(GuestVirt(kAt), FaultAccess::execute) == FaultOutcome::not_allowed);
    CHECK(w.space.mprotect(kAt, pages(1), PROT_READ | PROT_EXEC) == 0);
    CHECK(w.space.fault(GuestVirt(kAt), FaultAccess::execute) == FaultOutcome::done);
    CHECK(w.space.mprotect(kAt + pages(7), pages(2), PROT_READ) == -ENOMEM); // a hole behind it
    CHECK(w.space.mprotect(kAt + 1, 1, PROT_READ) == -EINVAL);
    CHECK(w.space.mprotect(kAt, 0, PROT_READ) == 0);
    CHECK(w.space.mprotect(kAt, ~0ull, PROT_READ) == -ENOMEM);
    CHECK(w.space.mprotect(kAt, kPageSize, 0x40) == -EINVAL);
    CHECK(w.space.mprotect(layout::kShared, kPageSize, PROT_READ) == -ENOMEM);
    CHECK(canonical(w.space));
}

TEST_CASE("mremap: in place, moved, fixed, shrunk; contents stay") {
    BootWorld w;
    AddressSpace& s = w.space;
    REQUIRE(map(s, kAt, 4) > 0);
    for (std::uint64_t p = 0; p < 4; ++p)
        REQUIRE(s.store(GuestVirt(kAt + pages(p)), p + 100));
    CHECK(s.mremap(kAt, pages(4), pages(6), 0, 0) == kAt);
    CHECK(load(s, kAt + pages(5)) == 0);
    REQUIRE(map(s, kAt + pages(6), 1, PROT_READ) > 0); // in the way
    CHECK(s.mremap(kAt, pages(6), pages(9), 0, 0) == -ENOMEM);
    const std::int64_t moved = s.mremap(kAt, pages(6), pages(9), MREMAP_MAYMOVE, 0);
    REQUIRE(moved > 0);
    const auto to = static_cast<std::uint64_t>(moved);
    CHECK(to != kAt);
    for (std::uint64_t p = 0; p < 4; ++p)
        CHECK(load(s, to + pages(p)) == p + 100);
    CHECK(load(s, to + pages(8)) == 0);
    CHECK_FALSE(s.load<char>(GuestVirt(kAt)));
    // Onto a place of its own, over what was there.
    const std::uint64_t there = kAt + pages(64);
    REQUIRE(map(s, there - pages(1), 8, PROT_READ) > 0);
    CHECK(s.mremap(to, pages(9), pages(3), MREMAP_MAYMOVE | MREMAP_FIXED, there) == static_cast<std::int64_t>(there));
    for (std::uint64_t p = 0; p < 3; ++p)
        CHECK(load(s, there + pages(p)) == p + 100);
    CHECK(s.store(GuestVirt(there), 1ull));
    CHECK_FALSE(s.store(GuestVirt(there - 8), 1ull)); // what is left of the old one
    CHECK_FALSE(s.store(GuestVirt(there + pages(3)), 1ull));
    CHECK(s.mremap(there, pages(3), pages(1), 0, 0) == static_cast<std::int64_t>(there));
    CHECK_FALSE(s.load<char>(GuestVirt(there + pages(1))));
    // Refused.
    CHECK(s.mremap(there + 1, pages(1), pages(2), 0, 0) == -EINVAL);
    CHECK(s.mremap(there, 0, pages(2), MREMAP_MAYMOVE, 0) == -EINVAL);
    CHECK(s.mremap(there, pages(1), 0, 0, 0) == -EINVAL);
    CHECK(s.mremap(there, pages(1), ~0ull, MREMAP_MAYMOVE, 0) == -EINVAL);
    CHECK(s.mremap(there, ~0ull, pages(1), MREMAP_MAYMOVE, 0) == -EINVAL);
    CHECK(s.mremap(there, pages(9), pages(20), MREMAP_MAYMOVE, 0) == -EFAULT);
    CHECK(s.mremap(0x7000000, pages(1), pages(2), MREMAP_MAYMOVE, 0) == -EFAULT);
    CHECK(s.mremap(there, pages(1), pages(1), MREMAP_FIXED, kAt) == -EINVAL);
    CHECK(s.mremap(there, pages(1), pages(1), MREMAP_MAYMOVE | MREMAP_FIXED, there) == -EINVAL);
    CHECK(s.mremap(there, pages(1), pages(1), MREMAP_MAYMOVE | MREMAP_FIXED, layout::kShared) == -EINVAL);
    CHECK(s.mremap(layout::kShared, pages(1), pages(2), MREMAP_MAYMOVE, 0) == -EINVAL);
    CHECK(canonical(s));
    CHECK(w.ram.bytes_in_use() == pages(reachable_frames(s)));
}

TEST_CASE("mremap onto the head of its own mapping") {
    BootWorld w;
    AddressSpace& s = w.space;
    REQUIRE(map(s, kAt, 8) > 0);
    REQUIRE(s.store(GuestVirt(kAt + pages(4)), 104ull));
    REQUIRE(s.store(GuestVirt(kAt + pages(2)), 102ull));
    CHECK(s.mremap(kAt + pages(4), pages(1), pages(2), MREMAP_MAYMOVE | MREMAP_FIXED, kAt) == kAt);
    CHECK(load(s, kAt) == 104);
    CHECK(load(s, kAt + pages(1)) == 0);
    CHECK(load(s, kAt + pages(2)) == 102);
    CHECK_FALSE(s.load<char>(GuestVirt(kAt + pages(4))));
    CHECK(s.address_space_bytes() == pages(7));
    CHECK(canonical(s));
    CHECK(w.ram.bytes_in_use() == pages(reachable_frames(s)));
}

TEST_CASE("madvise: DONTNEED is zero again, of shared memory it is not; holes are told") {
    BootWorld w;
    AddressSpace& s = w.space;
    REQUIRE(map(s, kAt, 4) > 0);
    for (std::uint64_t p = 0; p < 4; ++p)
        REQUIRE(s.store(GuestVirt(kAt + pages(p)), 7ull));
    CHECK(s.madvise(kAt + pages(1), pages(2), MADV_DONTNEED) == 0);
    CHECK(load(s, kAt) == 7);
    CHECK(load(s, kAt + pages(1)) == 0);
    CHECK(load(s, kAt + pages(2)) == 0);
    CHECK(load(s, kAt + pages(3)) == 7);
    CHECK(s.madvise(kAt + pages(3), pages(2), MADV_DONTNEED) == -ENOMEM); // done, and the hole told
    CHECK(load(s, kAt + pages(3)) == 0);
    CHECK(s.madvise(kAt + 1, kPageSize, MADV_DONTNEED) == -EINVAL);
    CHECK(s.madvise(kAt, ~0ull, MADV_DONTNEED) == -EINVAL);
    CHECK(s.madvise(kAt, 0, MADV_DONTNEED) == 0);
    CHECK(s.madvise(kAt, kPageSize, 12345) == -EINVAL);
    CHECK(s.madvise(layout::kShared, kPageSize, MADV_DONTNEED) == -EINVAL);
    CHECK(s.madvise(kAt, kPageSize, MADV_FREE) == 0);
    CHECK(load(s, kAt) == 7);
    const std::int64_t shared = s.mmap(0, pages(2), kRw, MAP_SHARED | MAP_ANONYMOUS, nullptr, 0);
    REQUIRE(shared > 0);
    REQUIRE(s.store(GuestVirt(static_cast<std::uint64_t>(shared)), 8ull));
    CHECK(s.madvise(static_cast<std::uint64_t>(shared), pages(2), MADV_DONTNEED) == 0);
    CHECK(load(s, static_cast<std::uint64_t>(shared)) == 8);
}

TEST_CASE("brk: grows, shrinks, stops at what is in the way") {
    BootWorld w;
    AddressSpace& s = w.space;
    const std::uint64_t base = 0x20000000;
    s.set_brk(base);
    CHECK(s.brk(0) == base);
    CHECK(s.brk(base - 1) == base);
    CHECK(s.brk(base + 100) == base + 100);
    REQUIRE(s.store(GuestVirt(base + 8), 3ull));
    CHECK(s.brk(base + pages(4)) == static_cast<std::int64_t>(base + pages(4)));
    CHECK(load(s, base + 8) == 3);
    REQUIRE(s.store(GuestVirt(base + pages(3)), 4ull));
    CHECK(s.brk(base + 8) == base + 8);
    CHECK(s.brk(base + pages(4)) == static_cast<std::int64_t>(base + pages(4)));
    CHECK(load(s, base + pages(3)) == 0);
    CHECK(s.brk(layout::kUserMax + 1) == static_cast<std::int64_t>(base + pages(4)));
    CHECK(s.brk(~0ull) == static_cast<std::int64_t>(base + pages(4)));
    REQUIRE(map(s, base + pages(6), 1) > 0);
    CHECK(s.brk(base + pages(7)) == static_cast<std::int64_t>(base + pages(4)));
    CHECK(s.brk(base + pages(6)) == static_cast<std::int64_t>(base + pages(6)));
    CHECK(canonical(s));
}

TEST_CASE("brk does not grow into a mapping that begins below it") {
    BootWorld w;
    const std::uint64_t base = 0x20000000;
    w.space.set_brk(base);
    REQUIRE(w.space.brk(base + pages(4)) > 0);
    REQUIRE(map(w.space, base + pages(2), 6, PROT_READ) > 0); // over the heap's end
    CHECK(w.space.brk(base + pages(6)) == static_cast<std::int64_t>(base + pages(4)));
    CHECK(canonical(w.space));
    CHECK(w.space.address_space_bytes() == pages(8));
}

TEST_CASE("mincore") {
    BootWorld w;
    REQUIRE(map(w.space, kAt, 256) > 0);
    REQUIRE(map(w.space, 0x40000000, 1) > 0);
    REQUIRE(w.space.store(GuestVirt(kAt), 1ull));
    CHECK(w.space.mincore(kAt, pages(256), GuestVirt(0x40000000)) == 0);
    CHECK(w.space.load<std::uint8_t>(GuestVirt(0x40000000)) == 1);
    CHECK(w.space.load<std::uint8_t>(GuestVirt(0x40000000 + 255)) == 0);
    CHECK(w.space.mincore(kAt + 1, 1, GuestVirt(0x40000000)) == -EINVAL);
    CHECK(w.space.mincore(kAt, pages(257), GuestVirt(0x40000000)) == -ENOMEM);
    CHECK(w.space.mincore(kAt, ~0ull, GuestVirt(0x40000000)) == -ENOMEM);
    CHECK(w.space.mincore(kAt, 1, GuestVirt(0)) == -EFAULT);
}

TEST_CASE("WIPEONFORK pages are wiped, others are not") {
    BootWorld w;
    AddressSpace& s = w.space;
    REQUIRE(map(s, kAt, 4) > 0);
    for (std::uint64_t p = 0; p < 4; ++p)
        REQUIRE(s.store(GuestVirt(kAt + pages(p)), 9ull));
    CHECK_FALSE(s.has_wipe_on_fork());
    CHECK(s.madvise(kAt + pages(1), pages(2), MADV_WIPEONFORK) == 0);
    CHECK(s.madvise(kAt + pages(2), pages(1), MADV_KEEPONFORK) == 0);
    CHECK(s.has_wipe_on_fork());
    REQUIRE(s.mprotect(kAt + pages(1), pages(1), PROT_NONE) == 0); // hidden, and wiped all the same
    CloneWorld clone(w.freeze());
    clone.space.wipe_on_fork();
    REQUIRE(clone.space.mprotect(kAt, pages(4), kRw) == 0);
    CHECK(load(clone.space, kAt) == 9);
    CHECK(load(clone.space, kAt + pages(1)) == 0);
    CHECK(load(clone.space, kAt + pages(2)) == 9);
    clone.reset();
    CHECK_FALSE(clone.difference());
}

TEST_CASE("what the host writes is told, for the dirty-bit reset") {
    BootWorld w;
    REQUIRE(map(w.space, kAt, 4) > 0);
    w.space.populate(GuestVirt(kAt), pages(4));
    CloneWorld clone(w.freeze());
    clone.space.track_host_writes(true);
    REQUIRE(clone.space.store(GuestVirt(kAt + pages(2) - 4), 1ull)); // over a border
    (void)load(clone.space, kAt);
    const auto dirty = clone.space.take_host_dirty();
    CHECK(dirty.size() == 2);
    CHECK(clone.space.take_host_dirty().empty());
    clone.space.note_host_write(GuestVirt(kAt + pages(3) + 5), 10);
    CHECK(clone.space.take_host_dirty().size() == 1);
}

TEST_CASE("a program that does the same all day does not fill the host's memory with notes") {
    BootWorld w;
    REQUIRE(map(w.space, kAt, 16) > 0);
    w.space.populate(GuestVirt(kAt), pages(16));
    CloneWorld clone(w.freeze());
    clone.space.track_host_writes(true);
    const std::vector<std::byte> bytes(pages(16));
    for (int i = 0; i < 5000; ++i) {
        REQUIRE(clone.space.write(GuestVirt(kAt), bytes));
        REQUIRE(clone.space.mprotect(kAt, pages(16), PROT_READ) == 0);
        REQUIRE(clone.space.mprotect(kAt, pages(16), kRw) == 0);
    }
    const auto dirty = clone.space.take_host_dirty();
    CHECK(dirty.size() <= 8192);
    CHECK(std::set<Frame>(dirty.begin(), dirty.end()).size() == 16);
    const auto writable = clone.space.take_made_writable();
    CHECK(writable.size() <= 8192);
    CHECK(std::set<Frame>(writable.begin(), writable.end()).size() == 16);
}
