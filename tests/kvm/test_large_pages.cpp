// Machines whose constants are in large pages. What is in those differs here from what is in the frames that they stand
// in for, so that the guest can tell which of them it sees.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <optional>

#include "tests/kvm/world.hpp"
#include "tinykvm/machine/large_pages.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

namespace {

enum Deed {
    kLook,
    kAlter,
    kUnmap,
    kReplace,
    kForget,
    kMove,
    kFault,
    kHide,
    kHostReads,
    kTwice,
    kDeeds
}; // as guests/large.cpp

constexpr std::uint64_t kApart = 1'000'000; // the numbers in large pages are so much higher

struct Server {
    World world;
    std::shared_ptr<MachineImage> image;
    std::vector<GuestVirt> at;
    std::optional<LargeContent> content; // what was there before there were large pages

    Server() : world(server_permissions()) {
        image = world.image_of("large");
        clear_marks(*image, *image->image);
        at = large_candidates(*image); // and what else there is between the code and the table
        REQUIRE(at.size() >= 3);
        at.erase(at.begin(), at.end() - 3);
        auto large = std::make_unique<LargePages>(at.size());
        for (const GuestVirt page : at) {
            const UniqueFd file(::memfd_create("large", MFD_CLOEXEC));
            std::uint64_t offset = 0;
            for (const Frame frame : frames_of_large(*image, page)) {
                std::array<std::byte, kPageSize> other;
                std::memcpy(other.data(), image->image->data() + frame_address(frame).value, kPageSize);
                std::uint64_t number;
                std::memcpy(&number, other.data(), 8);
                number += kApart;
                std::memcpy(other.data(), &number, 8);
                REQUIRE(::pwrite(file.get(), other.data(), kPageSize, static_cast<off_t>(offset)) == kPageSize);
                offset += kPageSize;
            }
            REQUIRE(offset == LargePages::kBytes);
            REQUIRE(large->add_any(file.get()));
        }
        std::vector<LargePageState> places;
        for (const GuestVirt page : at)
            places.push_back({page.value, {}, {}});
        content.emplace(*image, places);
        use_large(*image, *image->image, std::move(large), at);
    }
};

using Reply = std::array<std::uint64_t, 4>;

Reply ask(Server& server, Machine& machine, std::uint32_t deed) {
    const std::uint32_t slot = connect_client(machine, {reinterpret_cast<const char*>(&deed), sizeof(deed)});
    server.world.host.allow(30);
    const Stop stop = machine.run();
    CAPTURE(deed, stop.report, server.world.host.notes);
    REQUIRE(stop.kind == StopKind::waiting);
    const std::string bytes = take_reply(machine, slot);
    Reply reply{};
    REQUIRE(bytes.size() == sizeof(reply));
    std::memcpy(reply.data(), bytes.data(), sizeof(reply));
    return reply;
}

constexpr std::uint64_t sum(std::uint64_t first, std::uint64_t pages, std::uint64_t more) {
    return pages * (first + first + pages - 1) / 2 + pages * more;
}

Reply untouched() { return {sum(0, 512, kApart), sum(512, 7, kApart), sum(1024, 512, kApart), 0}; }

} // namespace

TEST_CASE("what a program changes of a large page is its own, until the reset, after which it has small ones") {
    Server server;
    const Reply untouched = ::untouched();
    for (const ResetStrategy strategy : strategies()) {
        CAPTURE(static_cast<int>(strategy));
        const auto other = Machine::clone(server.world.env, server.image, server.world.host, strategy);
        for (std::uint32_t first = 0; first < kDeeds; ++first) {
            const auto machine = Machine::clone(server.world.env, server.image, server.world.host, strategy);
            const auto reset = [&] {
                machine->reset();
                CHECK(machine->compare_with_image() == "");
                machine->prepare();
            };
            REQUIRE(ask(server, *machine, kLook) == untouched);
            reset();
            bool small = false;
            for (std::uint32_t deed : {first, first, (first + 1) % kDeeds, (first + 4) % kDeeds, first}) {
                CAPTURE(first, deed);
                small |= deed != kLook && deed != kForget && deed != kFault && deed != kHostReads;
                const Reply reply = ask(server, *machine, deed);
                CHECK(reply[0] == untouched[0]); // the neighbours stay large
                CHECK(reply[2] == untouched[2]);
                const Reply pristine{untouched[0], small ? sum(512, 7, 0) : untouched[1], untouched[2], 0};
                if (deed != kUnmap && deed != kReplace)
                    CHECK(reply[1] == pristine[1]); // what it altered is not in this sum
                CHECK(reply[3] == (deed == kMove || deed == kHostReads ? 519 : 0)); // the host sees the frames
                CHECK(ask(server, *other, kLook) == untouched);
                reset();
                CHECK(ask(server, *machine, kLook) == pristine);
                reset();
            }
        }
    }
}

TEST_CASE("an image that a machine was merged into has frames instead of large pages, and gets these again if they are "
          "no others",
          "[alike]") {
    for (std::uint32_t deed = 0; deed < kDeeds; ++deed) {
        CAPTURE(deed);
        Server server;
        auto machine = Machine::clone(server.world.env, server.image, server.world.host, ResetStrategy::working_set);
        ask(server, *machine, deed);
        const auto memory = server.image->image;
        server.image.reset();
        std::vector<Frame> changed;
        const auto merged = std::move(*machine).merge_into(memory, &changed);
        machine.reset();
        const bool same = server.content->same_in(*merged, changed);
        CHECK(same == (deed == kLook || deed == kForget || deed == kFault || deed == kHostReads));
        if (deed == kUnmap || deed == kReplace)
            continue; // it cannot look there any more
        clear_marks(*merged, *memory);
        const auto look = [&] {
            const auto next = Machine::clone(server.world.env, merged, server.world.host, ResetStrategy::working_set);
            return ask(server, *next, kLook);
        };
        auto large = memory->take_large();
        CHECK(look() == Reply{sum(0, 512, 0), sum(512, 7, 0), sum(1024, 512, 0), 0});
        if (!same)
            continue;
        use_large(*merged, *memory, std::move(large), server.at);
        CHECK(look() == untouched());
    }
}

TEST_CASE("a state whose large pages are none of the program's is refused", "[alike]") {
    Server server;
    const auto image = server.world.image_of("large");
    const auto restored = [&](std::vector<LargePageState> pages) {
        MachineState state = to_state(*image, server.world.env, ProgramSpec{});
        state.large_pages = std::move(pages);
        std::vector<std::string> warnings;
        try {
            from_state(state, image->image, *server.world.policy, warnings);
            return true;
        } catch (const UserError& error) {
            CHECK(error.code() == ExitCode::bad_snapshot);
            return false;
        }
    };
    const std::uint64_t first = server.at[0].value, last = server.at[2].value;
    CHECK(restored({{first, {}, {}}, {last, {}, {}}}));
    CHECK_FALSE(restored({{last, {}, {}}, {first, {}, {}}}));
    CHECK_FALSE(restored({{first, {}, {}}, {first, {}, {}}}));
    CHECK_FALSE(restored({{first + kPageSize, {}, {}}}));
    CHECK_FALSE(restored({{last + LargePages::kBytes, {}, {}}}));
}

TEST_CASE("there are as many large pages as there is room for, and files that are none are not taken") {
    LargePages pages(1);
    const UniqueFd file(::memfd_create("large", MFD_CLOEXEC));
    REQUIRE(::ftruncate(file.get(), LargePages::kBytes) == 0);
    CHECK_FALSE(pages.add(file.get())); // of small pages
    CHECK(pages.count() == 0);
    CHECK(pages.add_any(file.get()));
    CHECK_FALSE(pages.add_any(file.get()));
    CHECK(pages.count() == 1);
    CHECK(!pages.link(LargePages::address(0).value | 0x81));
    pages.stand_in_for(0x1067);
    CHECK(pages.link(LargePages::address(0).value | 0x81) == 0x1067);
    CHECK(!pages.link(LargePages::address(0).value | 0x01));
    CHECK(!pages.link(LargePages::address(1).value | 0x81));
    CHECK(!pages.link(0x1081));
}
