// Memory of images and clones in huge pages of the host: what it holds, and that it stays. Whether the host gives any
// is a matter of its settings (tests/e2e/test_huge_pages.py).
#include <sys/resource.h>

#include "tests/unit/memory/world.hpp"
#include "tinykvm/memory/huge_pages.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

namespace {

constexpr std::uint32_t kImage = 4;         // frames
constexpr Frame kFirst = kHugePageFrames;   // its first frame
constexpr Frame kEnd = kFirst + 2 * kFirst; // of 4 MiB
constexpr std::uint64_t kArenaBytes = 2 * kHugePageBytes;

long faults() {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt;
}

} // namespace

TEST_CASE("an arena has its memory from the beginning and keeps it, zeroed") {
    kvm::Vm vm = kvm_device().create_vm();
    GuestRam ram = GuestRam::clone(vm, image_of(kImage), 16 * kMiB, {.bytes = kArenaBytes});
    CHECK(ram.arena_frames() == kArenaBytes / kPageSize);
    CHECK(reinterpret_cast<std::uintptr_t>(ram.host(GuestPhys(0))) % kHugePageBytes == 0);
    CHECK(ram.frame_bytes(3)[0] == std::byte{4});
    for (int round = 0; round < 3; ++round) {
        CAPTURE(round);
        const std::uint32_t count = 1800; // the gap, the arena and more
        REQUIRE(ram.allocate(count) == Frame{kImage});
        const std::span<std::byte> all{ram.frame_bytes(kImage).data(), count * kPageSize};
        REQUIRE(all_zero(all));
        const long before = faults();
        std::memset(ram.frame_bytes(kFirst).data(), 0xcc, kArenaBytes);
        CHECK(faults() == before);
        std::memset(all.data(), 0xcc, all.size());
        CHECK(ram.drop_headroom() == count);
        CHECK(ram.bytes_in_use() == 0);
        CHECK(all_zero({ram.frame_bytes(kImage).data(), (kEnd - kImage) * kPageSize}));
        ram.drop_kept_headroom(); // does not concern it
    }
}

TEST_CASE("what is given back of an arena, and around it, is zero when it comes again") {
    kvm::Vm vm = kvm_device().create_vm();
    GuestRam ram = GuestRam::clone(vm, image_of(kImage), 16 * kMiB, {.bytes = kArenaBytes});
    REQUIRE(ram.allocate(2000) == Frame{kImage});
    struct Case {
        Frame first;
        std::uint32_t count;
    };
    for (const Case& c : {Case{kFirst - 3, 6}, Case{kFirst + 700, 5}, Case{kEnd - 2, 4}, Case{2, 3},
                          Case{kFirst - 1, kEnd - kFirst + 2}}) {
        CAPTURE(c.first, c.count);
        std::memset(ram.frame_bytes(kImage).data(), 0xcc, 2000 * kPageSize);
        const std::uint64_t used = ram.bytes_in_use();
        ram.release(c.first, c.count);
        const Frame own = std::max(c.first, Frame{kImage}), end = c.first + c.count;
        CHECK(used - ram.bytes_in_use() == (end - own) * kPageSize);
        CHECK(ram.frame_bytes(c.first - 1)[0] == (c.first - 1 < kImage ? std::byte{2} : std::byte{0xcc}));
        CHECK(ram.frame_bytes(end)[0] == std::byte{0xcc});
        REQUIRE(ram.allocate(end - own) == own);
        CHECK(all_zero({ram.frame_bytes(own).data(), (end - own) * kPageSize}));
    }
    ram.drop_translations(kFirst + 100, 3); // rounded to whole huge pages, and only there
    CHECK(ram.frame_bytes(kFirst)[0] == std::byte{0});
    ram.frame_bytes(kFirst + 100)[0] = std::byte{1}; // still writable
}

TEST_CASE("an arena may be larger than the memory that is left") {
    kvm::Vm vm = kvm_device().create_vm();
    GuestRam ram = GuestRam::clone(vm, image_of(kImage), 1 * kMiB, {.bytes = kArenaBytes});
    CHECK(ram.allocate(kEnd - kImage) == Frame{kImage});
    CHECK_FALSE(ram.allocate(1));
}

TEST_CASE("an image keeps its content when it moves into huge pages, in clones that are there too") {
    constexpr std::uint32_t kFrames = 3 * kHugePageFrames + 100;
    const auto image = image_of(kFrames);
    image->want_huge_pages(~std::uint64_t{0});
    CHECK(image->huge_bytes() == 3 * kHugePageBytes);
    kvm::Vm vm = kvm_device().create_vm(), later_vm = kvm_device().create_vm();
    const GuestRam early = GuestRam::clone(vm, image, 64 * kMiB);
    early.frame_bytes(5)[0] = std::byte{0x99};
    CHECK(image->use_huge_pages() % kHugePageBytes == 0);
    const GuestRam late = GuestRam::clone(later_vm, image, 64 * kMiB);
    CHECK(reinterpret_cast<std::uintptr_t>(late.host(GuestPhys(0))) % kHugePageBytes == 0);
    for (Frame f = 0; f < kFrames; ++f) {
        const auto want = static_cast<std::byte>(f % 255 + 1);
        REQUIRE(late.frame_bytes(f)[1] == want);
        REQUIRE(early.frame_bytes(f)[1] == want);
        REQUIRE(image->data()[f * kPageSize] == want);
    }
    CHECK(early.frame_bytes(5)[0] == std::byte{0x99});
    image->want_huge_pages(2 * kMiB + 1);
    CHECK(image->huge_bytes() == 2 * kMiB);
}

TEST_CASE("boot memory keeps its content when it moves into huge pages") {
    kvm::Vm vm = kvm_device().create_vm();
    GuestRam ram = GuestRam::boot(vm, 64 * kMiB);
    REQUIRE(ram.allocate(2 * kHugePageFrames) == Frame{0});
    std::memset(ram.host(GuestPhys(0)), 0x5a, 2 * kHugePageBytes);
    const std::uint64_t got = ram.use_huge_pages(~std::uint64_t{0});
    CHECK(got <= 2 * kHugePageBytes);
    for (Frame f = 0; f < 2 * kHugePageFrames; ++f)
        REQUIRE(ram.frame_bytes(f)[9] == std::byte{0x5a});
    ram.release(kHugePageFrames, 3); // splits one
    CHECK(all_zero({ram.frame_bytes(kHugePageFrames).data(), 3 * kPageSize}));
    CHECK(ram.frame_bytes(kHugePageFrames + 3)[0] == std::byte{0x5a});
}
