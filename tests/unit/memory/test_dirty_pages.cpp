#include "tests/unit/memory/world.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

TEST_CASE("exactly the written pages are private") {
    const Frame frames = 3000; // more than one answer of the kernel holds when every second one is written
    const auto image = Image::create(frames);
    for (Frame f = 0; f < frames; f += 3)
        image->data()[f * kPageSize] = std::byte{1};
    kvm::Vm vm = kvm_device().create_vm();
    GuestRam ram = GuestRam::clone(vm, image, 16 * kMiB);
    std::byte* base = ram.host(GuestPhys(0));
    CHECK(private_pages(base, frames).empty());
    volatile std::byte sum{};
    for (Frame f = 0; f < frames; ++f)
        sum = sum | base[f * kPageSize]; // reading makes no copy
    CHECK(private_pages(base, frames).empty());
    std::vector<Frame> want;
    std::mt19937 random(1);
    for (Frame f = 0; f < frames; ++f)
        if (random() % 2 == 0) {
            base[f * kPageSize + random() % kPageSize] = std::byte{9};
            want.push_back(f);
        }
    want.push_back(0);
    *static_cast<volatile std::byte*>(base) = std::byte{1}; // a write of what was there is a write
    std::sort(want.begin(), want.end());
    want.erase(std::unique(want.begin(), want.end()), want.end());
    CHECK((private_pages(base, frames) == want));
    // Only what was asked for.
    std::vector<Frame> few = want;
    std::erase_if(few, [](Frame f) { return f >= 100; });
    CHECK((private_pages(base, 100) == few));
    CHECK(private_pages(base, 0).empty());
    ram.release(0, frames);
    CHECK(private_pages(base, frames).empty());
}

TEST_CASE("pages next to each other come one by one, ascending") {
    const Frame frames = 600;
    const auto image = Image::create(frames);
    kvm::Vm vm = kvm_device().create_vm();
    GuestRam ram = GuestRam::clone(vm, image, 4 * kMiB);
    std::memset(ram.host(GuestPhys(0)), 1, frames * kPageSize);
    const auto pages = private_pages(ram.host(GuestPhys(0)), frames);
    REQUIRE(pages.size() == frames);
    for (Frame f = 0; f < frames; ++f)
        REQUIRE(pages[f] == f);
}

TEST_CASE("headroom behind the image is not looked at") {
    const auto image = Image::create(4);
    kvm::Vm vm = kvm_device().create_vm();
    GuestRam ram = GuestRam::clone(vm, image, 1 * kMiB);
    REQUIRE(ram.allocate(4));
    ram.frame_bytes(5)[0] = std::byte{1};
    ram.frame_bytes(3)[0] = std::byte{1};
    CHECK(private_pages(ram.host(GuestPhys(0)), ram.image_frames()) == std::vector<Frame>{3});
}
