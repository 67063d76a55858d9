// Address spaces: what is in them, and what happens where it cannot be had.
#include "tests/unit/memory/mapping.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

TEST_CASE("files: contents, the last partial page, behind the end") {
    BootWorld w;
    AddressSpace& s = w.space;
    std::string text(2 * kPageSize + 100, 'x');
    for (std::size_t i = 0; i < text.size(); ++i)
        text[i] = static_cast<char>('a' + i % 23);
    const auto file = file_of(text);
    REQUIRE(s.mmap(kAt, pages(5), PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) == kAt);
    std::string got(text.size(), 0);
    REQUIRE(s.read(GuestVirt(kAt), std::as_writable_bytes(std::span(got))));
    CHECK(got == text);
    for (std::uint64_t i = 100; i < kPageSize; i += 8)
        REQUIRE(s.load<std::uint8_t>(GuestVirt(kAt + pages(2) + i)) == 0);
    CHECK(s.fault(GuestVirt(kAt + pages(3)), FaultAccess::read) == FaultOutcome::past_file);
    CHECK(s.fault(GuestVirt(kAt + pages(4)), FaultAccess::read) == FaultOutcome::past_file);
    CHECK_FALSE(s.load<char>(GuestVirt(kAt + pages(3))));
    // From the middle, and from beyond the end.
    const std::uint64_t b = kAt + pages(16);
    REQUIRE(s.mmap(b, pages(2), kRw, MAP_PRIVATE | MAP_FIXED, file, pages(2)) > 0);
    CHECK(s.load<char>(GuestVirt(b)) == text[pages(2)]);
    CHECK(s.fault(GuestVirt(b + pages(1)), FaultAccess::read) == FaultOutcome::past_file);
    for (const std::uint64_t offset : {~std::uint64_t{0} << 12, std::uint64_t{1} << 63})
        CHECK(s.mmap(b, pages(2), kRw, MAP_PRIVATE | MAP_FIXED, file, offset) == -EOVERFLOW);
    for (const std::uint64_t offset : {pages(3), std::uint64_t{1} << 40}) {
        REQUIRE(s.mmap(b, pages(2), kRw, MAP_PRIVATE | MAP_FIXED, file, offset) > 0);
        CHECK(s.fault(GuestVirt(b), FaultAccess::read) == FaultOutcome::past_file);
        CHECK(s.fault(GuestVirt(b + pages(1)), FaultAccess::read) == FaultOutcome::past_file);
    }
    // Private: writes do not reach the file; DONTNEED brings its bytes back.
    REQUIRE(s.mmap(b, pages(2), kRw, MAP_PRIVATE | MAP_FIXED, file, 0) > 0);
    REQUIRE(s.store(GuestVirt(b), 'Z'));
    CHECK(s.load<char>(GuestVirt(kAt)) == text[0]);
    CHECK(s.madvise(b, pages(1), MADV_DONTNEED) == 0);
    CHECK(s.load<char>(GuestVirt(b)) == text[0]);
    // Parts keep their place in the file.
    CHECK(s.munmap(b, pages(1)) == 0);
    CHECK(s.load<char>(GuestVirt(b + pages(1))) == text[pages(1)]);
    const std::int64_t moved = s.mremap(b + pages(1), pages(1), pages(2), MREMAP_MAYMOVE | MREMAP_FIXED, b + pages(8));
    REQUIRE(moved > 0);
    CHECK(s.load<char>(GuestVirt(static_cast<std::uint64_t>(moved) + pages(1))) == text[pages(2)]);
    CHECK(canonical(s));
}

TEST_CASE("a file that shrinks or cannot be read is the program's trouble") {
    BootWorld w;
    const auto file = file_of(std::string(3 * kPageSize, 'q'));
    REQUIRE(w.space.mmap(kAt, pages(3), PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) > 0);
    REQUIRE(::ftruncate(file->fd.get(), 10) == 0);
    CHECK(w.space.load<char>(GuestVirt(kAt)) == 'q');
    CHECK(w.space.load<char>(GuestVirt(kAt + 10)) == 0);
    CHECK(w.space.fault(GuestVirt(kAt + pages(1)), FaultAccess::read) == FaultOutcome::past_file);
    int pipe[2];
    REQUIRE(::pipe(pipe) == 0);
    ::close(pipe[1]);
    const auto unreadable = std::make_shared<FileBacking>(FileBacking{UniqueFd(pipe[0]), "pipe"});
    REQUIRE(w.space.mmap(kAt + pages(8), pages(1), PROT_READ, MAP_PRIVATE | MAP_FIXED, unreadable, 0) > 0);
    CHECK(w.space.fault(GuestVirt(kAt + pages(8)), FaultAccess::read) == FaultOutcome::past_file);
}

TEST_CASE("gather: what fails leaves the runs as they were, also the one that it had made longer") {
    BootWorld w;
    REQUIRE(map(w.space, kAt, 3) > 0);
    std::vector<iovec> out;
    REQUIRE(w.space.gather(GuestVirt(kAt), 100, Access::read, out));
    CHECK_FALSE(w.space.gather(GuestVirt(kAt + 100), pages(4), Access::read, out));
    REQUIRE(out.size() == 1);
    CHECK(out[0].iov_len == 100);
}

TEST_CASE("gather: one run over what is contiguous, nothing over holes or rights") {
    BootWorld w;
    AddressSpace& s = w.space;
    REQUIRE(map(s, kAt, 4) > 0);
    REQUIRE(map(s, kAt + pages(4), 2, PROT_READ) > 0);
    REQUIRE(map(s, kAt + pages(8), 1) > 0);
    s.place(GuestVirt(layout::kShared), kPageSize, kRw, 0, "[shared]");
    s.place(GuestVirt(layout::kCpuTables), kPageSize, kRw, kRegionSupervisor, "[cpu tables]");
    const auto gather = [&](std::uint64_t at, std::uint64_t length, Access access) {
        std::vector<iovec> out;
        if (!s.gather(GuestVirt(at), length, access, out))
            return std::int64_t{-1};
        std::uint64_t total = 0;
        for (const iovec& r : out) {
            const auto* p = static_cast<std::byte*>(r.iov_base);
            REQUIRE(p >= w.ram.host(GuestPhys(0)));
            REQUIRE(p + r.iov_len <= w.ram.host(frame_address(w.ram.high())));
            total += r.iov_len;
        }
        return static_cast<std::int64_t>(total);
    };
    CHECK(gather(kAt + 5, pages(4) - 5, Access::write) == static_cast<std::int64_t>(pages(4) - 5));
    CHECK(gather(kAt + 5, pages(6) - 5, Access::read) == static_cast<std::int64_t>(pages(6) - 5));
    CHECK(gather(kAt, pages(4) + 1, Access::write) == -1);
    CHECK(gather(kAt, pages(6) + 1, Access::read) == -1);
    CHECK(gather(kAt + pages(7), 8, Access::read) == -1);
    CHECK(gather(kAt - 1, 2, Access::read) == -1);
    CHECK(gather(kAt + pages(6) - 1, pages(2) + 2, Access::read) == -1); // over a hole
    CHECK(gather(kAt, 0, Access::read) == 0);
    CHECK(gather(0, 0, Access::read) == 0);
    CHECK(gather(0, 1, Access::read) == -1);
    CHECK(gather(~0ull, 1, Access::read) == -1);
    CHECK(gather(~0ull, 2, Access::read) == -1);
    CHECK(gather(kAt, ~0ull, Access::read) == -1);
    CHECK(gather(kAt, ~0ull - kAt + 1, Access::read) == -1);
    CHECK(gather(1ull << 63, 1ull << 63, Access::read) == -1);
    CHECK(gather(layout::kShared, 100, Access::write) == 100);
    CHECK(gather(layout::kCpuTables, 1, Access::read) == -1);
    CHECK(gather(layout::kCpuTables, 1, Access::write) == -1);
    std::vector<iovec> out;
    REQUIRE(s.gather(GuestVirt(kAt), pages(4), Access::read, out));
    CHECK(out.size() == 1);
}

TEST_CASE("gather over more memory than there is: refused, and nothing is lost") {
    BootWorld w(1 * kMiB);
    REQUIRE(w.space.mmap(kAt, 64 * kMiB, kRw, kAnon | MAP_FIXED, nullptr, 0) > 0);
    std::vector<iovec> out;
    CHECK_FALSE(w.space.gather(GuestVirt(kAt), 64 * kMiB, Access::write, out));
    CHECK(w.space.out_of_memory());
    CHECK(w.space.fault(GuestVirt(kAt + 32 * kMiB), FaultAccess::write) == FaultOutcome::no_memory);
    CHECK(w.space.munmap(kAt, 64 * kMiB) == 0);
    REQUIRE(map(w.space, kAt, 1) > 0);
    CHECK(w.space.store(GuestVirt(kAt), 1ull));
}

namespace {
// There is a frame of memory left, or none.
void use_up(AddressSpace& space, std::uint64_t at) {
    REQUIRE(space.mmap(at, 64 * kMiB, kRw, kAnon | MAP_FIXED, nullptr, 0) > 0);
    for (std::uint64_t page = at; space.fault(GuestVirt(page), FaultAccess::write) == FaultOutcome::done;)
        page += kPageSize;
}
} // namespace

TEST_CASE("mremap without memory for tables: everything stays where it was") {
    BootWorld w(1 * kMiB);
    REQUIRE(map(w.space, kAt, 2) > 0);
    REQUIRE(w.space.store(GuestVirt(kAt + kPageSize), std::uint64_t{42}));
    use_up(w.space, kAt + kMiB);
    const std::uint64_t regions = w.space.regions().size();
    CHECK(w.space.mremap(kAt, pages(2), pages(2), MREMAP_MAYMOVE | MREMAP_FIXED, std::uint64_t{1} << 46) == -ENOMEM);
    CHECK(load(w.space, kAt + kPageSize) == 42);
    CHECK(w.space.regions().size() == regions);
    CHECK_FALSE(w.space.load<char>(GuestVirt(std::uint64_t{1} << 46)));
}

TEST_CASE("a fault that finds no memory for tables loses no frame") {
    for (std::uint64_t at = kAt; at < kAt + 512 * kPageSize; at += kPageSize) {
        BootWorld w(1 * kMiB);
        REQUIRE(w.space.mmap(at, 64 * kMiB, kRw, kAnon | MAP_FIXED, nullptr, 0) > 0);
        std::uint64_t page = at;
        while (w.space.fault(GuestVirt(page), FaultAccess::write) == FaultOutcome::done)
            page += kPageSize;
        CHECK(w.ram.bytes_in_use() == reachable_frames(w.space) * kPageSize);
    }
}

// The last frame of all memory and the first of a mapped file: one range of pages holds both.
TEST_CASE("munmap and mprotect over the last memory and a file behind it") {
    const auto file = file_of(std::string(3 * kPageSize, 'q'));
    const auto full = [&file](BootWorld& w) {
        const std::uint64_t at = kAt + kMiB;
        REQUIRE(w.space.mmap(at, pages(3), PROT_READ, MAP_SHARED | MAP_FIXED, file, 0) > 0);
        REQUIRE(load(w.space, at) != 0);
        // The last frame is given back, and taken by the page below the file.
        std::vector<std::uint64_t> taken;
        REQUIRE(map(w.space, kAt, kMiB / kPageSize) > 0);
        for (std::uint64_t page = kAt; w.space.fault(GuestVirt(page), FaultAccess::write) == FaultOutcome::done;
             page += kPageSize)
            taken.push_back(page);
        REQUIRE(w.space.madvise(taken.back(), pages(1), MADV_DONTNEED) == 0);
        REQUIRE(w.space.fault(GuestVirt(at - kPageSize), FaultAccess::write) == FaultOutcome::done);
        return taken.front();
    };
    BootWorld unmapped(1 * kMiB), protected_(1 * kMiB);
    const std::uint64_t at = full(unmapped);
    CHECK(unmapped.space.munmap(at, 2 * kMiB) == 0);
    CHECK(unmapped.ram.bytes_in_use() == reachable_frames(unmapped.space) * kPageSize);
    full(protected_);
    CHECK(protected_.space.mprotect(at, kMiB + pages(3), PROT_NONE) == 0);
    CHECK(protected_.space.mprotect(at, kMiB + pages(3), PROT_READ) == 0);
    CHECK(protected_.space.load<char>(GuestVirt(kAt + kMiB)) == 'q');
}

TEST_CASE("strings end before what cannot be read") {
    BootWorld w;
    AddressSpace& s = w.space;
    REQUIRE(map(s, kAt, 1) > 0);
    const std::string word = "word";
    REQUIRE(s.write(GuestVirt(kAt + kPageSize - 5), std::as_bytes(std::span(word.c_str(), 5))));
    CHECK(s.load_string(GuestVirt(kAt + kPageSize - 5), 100).value == "word");
    CHECK(s.load_string(GuestVirt(kAt + kPageSize - 5), 3).error == ENAMETOOLONG);
    CHECK(s.load_string(GuestVirt(kAt + kPageSize - 5), 4).error == 0);
    REQUIRE(s.store(GuestVirt(kAt + kPageSize - 1), 'x'));
    CHECK(s.load_string(GuestVirt(kAt + kPageSize - 5), 100).error == EFAULT);
    CHECK(s.load_string(GuestVirt(0), 100).error == EFAULT);
    CHECK(s.load_string(GuestVirt(~0ull - 3), 100).error == EFAULT);
}

TEST_CASE("faults: the guest kernel's own pages are not for the program") {
    BootWorld w;
    w.space.place(GuestVirt(layout::kCpuTables), kPageSize, kRw, kRegionSupervisor, "[cpu tables]");
    w.space.populate(GuestVirt(layout::kCpuTables), kPageSize);
    CHECK(w.space.fault(GuestVirt(layout::kCpuTables), FaultAccess::read) == FaultOutcome::not_allowed);
    CHECK(w.space.fault(GuestVirt(layout::kCpuTables), FaultAccess::write) == FaultOutcome::not_allowed);
    CHECK(w.space.fault(GuestVirt(0), FaultAccess::read) == FaultOutcome::not_mapped);
    CHECK(w.space.fault(GuestVirt(~0ull), FaultAccess::read) == FaultOutcome::not_mapped);
}
