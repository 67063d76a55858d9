#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/memory/world.hpp"
#include "tinykvm/memory/dirty_pages.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

TEST_CASE("frames are given out in order and counted") {
    kvm::Vm vm = kvm_device().create_vm();
    GuestRam ram = GuestRam::boot(vm, 1 * kMiB);
    CHECK(ram.allocate(3) == Frame{0});
    CHECK(ram.allocate(1) == Frame{3});
    CHECK(ram.high() == 4);
    CHECK(ram.bytes_in_use() == 4 * kPageSize);
    CHECK(ram.valid(3));
    CHECK_FALSE(ram.valid(4));
    CHECK_FALSE(ram.valid(~Frame{0}));
}

TEST_CASE("frames that come back are zero, are given out again and grow together") {
    kvm::Vm vm = kvm_device().create_vm();
    GuestRam ram = GuestRam::boot(vm, 1 * kMiB);
    REQUIRE(ram.allocate(8) == Frame{0});
    for (Frame f = 0; f < 8; ++f)
        std::memset(ram.frame_bytes(f).data(), 0xaa, kPageSize);
    ram.release(1, 1);
    ram.release(3, 1);
    CHECK(ram.free_runs() == std::map<Frame, std::uint32_t>{{1, 1}, {3, 1}});
    ram.release(2, 1); // between both
    CHECK(ram.free_runs() == std::map<Frame, std::uint32_t>{{1, 3}});
    ram.release(5, 2);
    ram.release(4, 1);
    CHECK(ram.free_runs() == std::map<Frame, std::uint32_t>{{1, 6}});
    CHECK(ram.bytes_in_use() == 2 * kPageSize);
    CHECK(ram.allocate(4) == Frame{1});
    CHECK(all_zero({ram.frame_bytes(1).data(), 4 * kPageSize}));
    CHECK(ram.frame_bytes(7)[0] == std::byte{0xaa});
    CHECK(ram.allocate(3) == Frame{8}); // the rest of the run is too short
    CHECK(ram.allocate(2) == Frame{5});
    CHECK(ram.free_runs().empty());
}

TEST_CASE("the limit is an answer, not a failure") {
    kvm::Vm vm = kvm_device().create_vm();
    GuestRam ram = GuestRam::boot(vm, 16 * kPageSize);
    CHECK_FALSE(ram.allocate(17));
    CHECK_FALSE(ram.allocate(0xffffffff));
    CHECK(ram.allocate(10) == Frame{0});
    CHECK_FALSE(ram.allocate(7));
    CHECK(ram.allocate(6) == Frame{10});
    CHECK_FALSE(ram.allocate(1));
    ram.release(4, 2);
    CHECK_FALSE(ram.allocate(3));
    CHECK(ram.allocate(2) == Frame{4});
    CHECK(ram.bytes_in_use() == 16 * kPageSize);
}

TEST_CASE("a lowered limit holds, and cannot be raised over what was reserved") {
    kvm::Vm vm = kvm_device().create_vm();
    GuestRam ram = GuestRam::boot(vm, 32 * kPageSize);
    ram.set_limit(8 * kPageSize);
    CHECK_FALSE(ram.allocate(9));
    CHECK(ram.allocate(8));
    ram.set_limit(1 << 30);
    CHECK_FALSE(ram.allocate(25));
    CHECK(ram.allocate(24));
}

TEST_CASE("slots follow the memory as it grows") {
    kvm::Vm vm = kvm_device().create_vm();
    GuestRam ram = GuestRam::boot(vm, 512 * kMiB);
    Frame expected = 0;
    while (const auto first = ram.allocate(4096)) { // 16 MiB at a time, over many slots
        CHECK(*first == expected);
        expected += 4096;
        *ram.frame_bytes(*first + 4095).data() = std::byte{1};
    }
    CHECK(expected == 512 * kMiB / kPageSize);
}

TEST_CASE("a clone writes to its own copy only") {
    const auto image = image_of(4);
    kvm::Vm vm_a = kvm_device().create_vm(), vm_b = kvm_device().create_vm();
    GuestRam a = GuestRam::clone(vm_a, image, 1 * kMiB);
    GuestRam b = GuestRam::clone(vm_b, image, 1 * kMiB);
    CHECK(a.image_frames() == 4);
    CHECK(a.high() == 4);
    CHECK(a.bytes_in_use() == 0);
    std::memset(a.frame_bytes(2).data(), 0x55, kPageSize);
    CHECK(image->data()[2 * kPageSize] == std::byte{3});
    CHECK(b.frame_bytes(2)[7] == std::byte{3});
    CHECK(a.frame_bytes(2)[7] == std::byte{0x55});
    // Given back, it is the image's again; but nobody else gets the frame.
    a.release(2, 1);
    CHECK(a.frame_bytes(2)[7] == std::byte{3});
    CHECK(a.free_runs().empty());
    CHECK(a.allocate(1) == Frame{4});
}

namespace {
// A file of pages, each full of `value`.
UniqueFd file_of(std::uint32_t pages, int value) {
    UniqueFd fd(::memfd_create("part", MFD_CLOEXEC));
    const std::vector<std::byte> bytes(pages * kPageSize, static_cast<std::byte>(value));
    REQUIRE(::write(fd.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    return fd;
}
} // namespace

TEST_CASE("an image whose memory was prepared is filled like any other") {
    const UniqueFd file = file_of(4, 0x77);
    const std::vector<std::byte> pages(2 * kPageSize, std::byte{0x55});
    for (const std::uint32_t prepared : {0u, 4u, 8u, 100u}) {
        CAPTURE(prepared);
        const auto image =
            Image::create(16, prepared == 0 ? ImageMemory{} : ImageMemory::prepare(prepared * kPageSize));
        CHECK(all_zero(image->bytes()));
        image->fill(1, pages);
        image->fill(9, pages);
        CHECK(image->fill(4, 2, file.get(), kPageSize)); // across the end of four
        CHECK(image->fill(12, 2, file.get(), kPageSize));
        CHECK_FALSE(image->fill(14, 2, file.get(), 3 * kPageSize));
        image->give_back_prepared(14);
        std::string firsts;
        for (std::uint32_t frame = 0; frame < 14; ++frame)
            firsts += image->data()[frame * kPageSize + 7] == std::byte{0}
                          ? '.'
                          : static_cast<char>(image->data()[frame * kPageSize + 7]);
        CHECK(firsts == ".UU.ww...UU.ww");
        struct stat info {};
        REQUIRE(::fstat(image->fd(), &info) == 0);
        CHECK(info.st_size == 16 * static_cast<off_t>(kPageSize));
    }
    const auto image = Image::create(100, ImageMemory::prepare(64 * kPageSize));
    image->give_back_prepared(3); // what is not needed after all
    struct stat info {};
    REQUIRE(::fstat(image->fd(), &info) == 0);
    CHECK(info.st_blocks * 512 == 3 * static_cast<off_t>(kPageSize));
    image->fill(10, pages);
    CHECK(image->data()[11 * kPageSize] == std::byte{0x55});
}

namespace {
// An image's loader for which everything is there or never was.
class Loaded final : public ImageLoader {
public:
    explicit Loaded(std::string frames) : frames_(std::move(frames)) {}
    void load(std::uint32_t) override { FAIL("nothing is to be loaded"); }
    FramePresence presence(std::uint32_t frame) const override {
        const char kind = frames_.at(frame);
        return kind == '.' ? FramePresence::hole : kind == '?' ? FramePresence::absent : FramePresence::loaded;
    }
    void leave_out(std::uint32_t, std::uint32_t) override {}

private:
    const std::string frames_;
};
} // namespace

TEST_CASE("memory that was prepared for zero pages and where a part lies now is given back, and nothing else") {
    kvm::Vm vm = kvm_device().create_vm();
    const auto image = Image::create(16, ImageMemory::prepare(12 * kPageSize));
    image->set_loader(std::make_shared<Loaded>("UU..wwwww.U?...."));
    const std::vector<std::byte> page(kPageSize, std::byte{0x55});
    image->fill(0, std::vector<std::byte>(2 * kPageSize, std::byte{0x55}));
    image->fill(10, page);
    image->add_part({file_of(5, 0x77), 0, 4, 5});
    const auto in_memory = [&] {
        struct stat info {};
        REQUIRE(::fstat(image->fd(), &info) == 0);
        return info.st_blocks * 512 / static_cast<off_t>(kPageSize);
    };
    image->give_back_prepared(12);
    CHECK(in_memory() == 11);                        // without the one that is not loaded
    image->replace(3, page);                         // a hole no more
    image->data()[2 * kPageSize + 7] = std::byte{1}; // written to by who restores, such as a late environment
    GuestRam ram = GuestRam::clone(vm, image, 1 * kMiB);
    image->give_back_unused();
    CHECK(in_memory() == 5); // 0 to 3, and 10
    CHECK(image->data()[2 * kPageSize + 7] == std::byte{1});
    const auto firsts = [&] {
        std::string all;
        for (Frame frame = 0; frame < 11; ++frame)
            all += image->data()[frame * kPageSize] == std::byte{0}
                       ? '.'
                       : static_cast<char>(image->data()[frame * kPageSize]);
        return all;
    };
    CHECK(firsts() == "UU.Uwwwww.U");
    CHECK(ram.frame_bytes(8)[0] == std::byte{0x77});
    image->replace(5, page); // brings the part into the memfd
    CHECK(firsts() == "UU.UwUwww.U");
}

TEST_CASE("a part of an image lies in a file, for the machines that are there and for those that come") {
    kvm::Vm first_vm = kvm_device().create_vm(), second_vm = kvm_device().create_vm();
    const auto image = image_of(8);
    GuestRam before = GuestRam::clone(first_vm, image, 1 * kMiB);
    { // one that is gone gets nothing
        kvm::Vm vm = kvm_device().create_vm();
        const GuestRam gone = GuestRam::clone(vm, image, 1 * kMiB);
    }
    UniqueFd file = file_of(4, 0x77);
    const int kept = ::dup(file.get());
    image->add_part({std::move(file), kPageSize, 2, 3});
    GuestRam after = GuestRam::clone(second_vm, image, 1 * kMiB);
    for (const std::byte* memory :
         {before.host(GuestPhys(0)), after.host(GuestPhys(0)), static_cast<std::byte*>(image->data())}) {
        CHECK(memory[2 * kPageSize - 1] == std::byte{2});
        CHECK(memory[2 * kPageSize] == std::byte{0x77});
        CHECK(memory[5 * kPageSize - 1] == std::byte{0x77});
        CHECK(memory[5 * kPageSize] == std::byte{6});
    }
    before.frame_bytes(3)[0] = std::byte{0x11};
    CHECK(after.frame_bytes(3)[0] == std::byte{0x77});
    CHECK(image->data()[3 * kPageSize] == std::byte{0x77});
    std::byte in_file{};
    CHECK(::pread(kept, &in_file, 1, 2 * kPageSize) == 1);
    CHECK(in_file == std::byte{0x77});
    before.release(3, 1); // as a reset does: back to what the file holds
    CHECK(before.frame_bytes(3)[0] == std::byte{0x77});
    CHECK_THROWS_AS(image->add_part({UniqueFd(kept), 0, 6, 3}), std::logic_error);
}

TEST_CASE("pages that a file holds as well come from there, once no machine has them") {
    kvm::Vm vm = kvm_device().create_vm();
    const auto image = Image::create(8);
    image->fill(0, std::vector<std::byte>(8 * kPageSize, std::byte{0x77}));
    const auto in_memory = [&] {
        struct stat info {};
        REQUIRE(::fstat(image->fd(), &info) == 0);
        return info.st_blocks * 512 / static_cast<off_t>(kPageSize);
    };
    {
        const GuestRam ram = GuestRam::clone(vm, image, 1 * kMiB);
        CHECK_FALSE(image->exchange({file_of(4, 0x77), 0, 2, 4}));
        CHECK(in_memory() == 8);
    }
    CHECK(image->exchange({file_of(4, 0x77), 0, 2, 4}));
    CHECK(in_memory() == 4);
    CHECK(image->in_parts() == std::vector<bool>{false, false, true, true, true, true, false, false});
    GuestRam ram = GuestRam::clone(vm, image, 1 * kMiB);
    ram.frame_bytes(2)[0] = std::byte{1};
    for (Frame frame = 0; frame < 8; ++frame) {
        CHECK(image->data()[frame * kPageSize] == std::byte{0x77});
        CHECK(ram.frame_bytes(frame)[0] == (frame == 2 ? std::byte{1} : std::byte{0x77}));
    }
}

TEST_CASE("half of an image's parts are for pages that are not loaded yet") {
    const auto image = Image::create(Image::kMaxParts);
    std::uint32_t exchanged = 0;
    while (exchanged < Image::kMaxParts && image->exchange({file_of(1, 0x77), 0, exchanged, 1}))
        ++exchanged;
    CHECK(exchanged == Image::kMaxParts / 2);
    CHECK_NOTHROW(image->add_part({file_of(1, 0x77), 0, exchanged, 1}));
}

TEST_CASE("an image has only so many parts, and goes on without more") {
    const auto image = Image::create(Image::kMaxParts + 1);
    for (std::uint32_t frame = 0; frame < Image::kMaxParts; ++frame)
        image->add_part({file_of(1, 0x77), 0, frame, 1});
    const std::uint32_t last = Image::kMaxParts;
    CHECK_THROWS_AS(image->add_part({file_of(1, 0x77), 0, last, 1}), HostError);
    image->fill(last, std::vector<std::byte>(kPageSize, std::byte{0x55}));
    kvm::Vm vm = kvm_device().create_vm();
    const GuestRam ram = GuestRam::clone(vm, image, 1 * kMiB);
    CHECK(ram.host(frame_address(last))[0] == std::byte{0x55});
    CHECK(ram.host(frame_address(last - 1))[0] == std::byte{0x77});
}

TEST_CASE("a run across the image's end is given back by halves") {
    const auto image = image_of(4);
    kvm::Vm vm = kvm_device().create_vm();
    GuestRam ram = GuestRam::clone(vm, image, 1 * kMiB);
    REQUIRE(ram.allocate(3) == Frame{4});
    std::memset(ram.frame_bytes(3).data(), 0x77, 4 * kPageSize);
    ram.release(3, 3); // 3 is the image's, 4 and 5 are grown
    CHECK(ram.frame_bytes(3)[0] == std::byte{4});
    CHECK(ram.free_runs() == std::map<Frame, std::uint32_t>{{4, 2}});
    CHECK(ram.bytes_in_use() == 1 * kPageSize);
    CHECK(ram.allocate(2) == Frame{4});
    CHECK(all_zero({ram.frame_bytes(4).data(), 2 * kPageSize}));
}

TEST_CASE("headroom that is dropped is zero when it comes again") {
    const auto image = image_of(2);
    kvm::Vm vm = kvm_device().create_vm();
    GuestRam ram = GuestRam::clone(vm, image, 64 * kMiB);
    for (int round = 0; round < 3; ++round) {
        const std::uint32_t count = 4000; // more than the first slot
        const auto first = ram.allocate(count);
        REQUIRE(first == Frame{2});
        REQUIRE(all_zero({ram.frame_bytes(*first).data(), count * kPageSize}));
        std::memset(ram.frame_bytes(*first).data(), 0xcc, count * kPageSize);
        ram.release(*first + 10, 5);
        CHECK(ram.drop_headroom() == count);
        CHECK(ram.high() == 2);
        CHECK(ram.bytes_in_use() == 0);
        CHECK(ram.free_runs().empty());
        CHECK(ram.drop_headroom() == 0);
    }
}

TEST_CASE("the memory of what grew first is kept, up to a limit, and can be had ahead") {
    const auto image = image_of(2);
    kvm::Vm vm = kvm_device().create_vm();
    GuestRam ram = GuestRam::clone(vm, image, 4 * kMiB);
    const auto there = [&] { return private_pages(ram.host(GuestPhys(2 * kPageSize)), 1000).size(); };
    ram.prepare_headroom(10);
    CHECK(there() == 10);
    CHECK(ram.kept_headroom() == 10);
    for (const std::uint32_t count : {5u, 40u, 900u}) {
        const auto first = ram.allocate(count);
        REQUIRE(first);
        REQUIRE(all_zero({ram.frame_bytes(*first).data(), count * kPageSize}));
        std::memset(ram.frame_bytes(*first).data(), 0xcc, count * kPageSize);
        ram.drop_headroom();
        CHECK(ram.kept_headroom() == std::clamp(count, 10u, GuestRam::kMaxKeptHeadroom));
        CHECK(there() == ram.kept_headroom());
    }
    ram.drop_kept_headroom();
    CHECK(there() == 0);
    CHECK(ram.kept_headroom() == 0);
    ram.prepare_headroom(100000); // beyond all limits
    CHECK(there() == GuestRam::kMaxKeptHeadroom);
}

TEST_CASE("a clone has room for its image whatever the limit says") {
    const auto image = image_of(4);
    kvm::Vm vm = kvm_device().create_vm();
    GuestRam ram = GuestRam::clone(vm, image, kPageSize);
    CHECK(ram.frame_bytes(3)[0] == std::byte{4});
    CHECK_FALSE(ram.allocate(1));
}

TEST_CASE("dropping translations keeps contents") {
    const auto image = image_of(4);
    kvm::Vm vm = kvm_device().create_vm();
    GuestRam ram = GuestRam::clone(vm, image, 1 * kMiB);
    ram.frame_bytes(1)[0] = std::byte{0x99};
    ram.drop_translations(0, 4);
    CHECK(ram.frame_bytes(0)[0] == std::byte{1});
    CHECK(ram.frame_bytes(1)[0] == std::byte{0x99});
    ram.frame_bytes(3)[0] = std::byte{0x98}; // still writable
}
