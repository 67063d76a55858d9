// After each of many invocations that spoil all they can reach, and end in every way there is, the next one sees
// the machine as it was.
#include <sys/mman.h>

#include <algorithm>
#include <array>

#include "tests/kvm/serve_guest.hpp"
#include "tinykvm/abi/layout.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

namespace {

struct ResetServer {
    World world;
    std::shared_ptr<const MachineImage> image;

    ResetServer() : world(server_permissions()) {
        const auto made = world.image_of("serve");
        clear_marks(*made, *made->image);
        image = made;
    }
    std::unique_ptr<Machine> clone(ResetStrategy strategy) {
        return Machine::clone(world.env, image, world.host, strategy);
    }
};

} // namespace

TEST_CASE("every invocation sees the pristine machine, however the last one ended") {
    ResetServer server;
    for (const ResetStrategy strategy : strategies()) {
        CAPTURE(static_cast<int>(strategy));
        const auto machine = server.clone(strategy);
        Stop stop;
        const auto want = invoke(server.world, *machine, 0, kReply, stop);
        CAPTURE(stop.report);
        REQUIRE(want.size() == 30);
        CHECK(want[0] == 1);
        machine->reset();
        REQUIRE(machine->compare_with_image() == "");
        machine->prepare();
        std::mt19937 random(7);
        for (std::uint32_t round = 1; round <= std::max(cases(200), 60U); ++round) {
            // Every second one answers, so that each end is looked at from the next.
            const std::uint32_t end = round % 2 ? static_cast<std::uint32_t>(kReply) : random() % kEnds;
            CAPTURE(round, end);
            const auto facts = invoke(server.world, *machine, random(), end, stop, end == kReply ? 30 : 0.3);
            CAPTURE(stop.report, static_cast<int>(stop.kind));
            if (end == kReply)
                REQUIRE(facts == want);
            machine->reset();
            REQUIRE(machine->compare_with_image() == "");
            machine->prepare();
        }
    }
}

TEST_CASE("each way to end, then a clean invocation at once") {
    ResetServer server;
    for (const ResetStrategy strategy : strategies()) {
        const auto machine = server.clone(strategy);
        Stop stop;
        const auto want = invoke(server.world, *machine, 0, kReply, stop);
        machine->reset();
        machine->prepare();
        const StopKind kinds[kEnds] = {StopKind::waiting,   StopKind::exited, StopKind::killed,  StopKind::interrupted,
                                       StopKind::no_memory, StopKind::broken, StopKind::waiting, StopKind::waiting,
                                       StopKind::waiting,   StopKind::killed, StopKind::broken};
        for (std::uint32_t end = 0; end < kEnds; ++end) {
            CAPTURE(end, static_cast<int>(strategy));
            invoke(server.world, *machine, 0, end, stop);
            CAPTURE(stop.report);
            if (end != kScribble && end != kPort)
                CHECK(stop.kind == kinds[end]);
            REQUIRE(machine->settle()); // also of an IN that waits for its value
            machine->reset();
            CHECK(machine->compare_with_image() == "");
            machine->prepare();
            CHECK(invoke(server.world, *machine, 0, kReply, stop) == want);
            CAPTURE(stop.report, static_cast<int>(stop.kind));
            machine->reset();
            machine->prepare();
        }
    }
}

TEST_CASE("without a reset the state does stay") {
    ResetServer server;
    const auto machine = server.clone(ResetStrategy::working_set);
    Stop stop;
    const auto first = invoke(server.world, *machine, 0, kReply, stop);
    machine->connections().free(0);
    const auto second = invoke(server.world, *machine, 0, kReply, stop);
    REQUIRE(first.size() == 30);
    REQUIRE(second.size() == 30);
    CHECK(second[0] == 2);
}

TEST_CASE("compare_with_image finds what is not as it was") {
    ResetServer server;
    for (const ResetStrategy strategy : strategies()) {
        const auto machine = server.clone(strategy);
        Stop stop;
        REQUIRE(invoke(server.world, *machine, 0, kReply, stop).size() == 30);
        CHECK(machine->compare_with_image() != ""); // before the reset
        machine->reset();
        REQUIRE(machine->compare_with_image() == "");
        // One byte of the program's stack.
        const GuestVirt at(layout::kStackTop - 64);
        const auto byte = machine->space().load<std::uint8_t>(at);
        REQUIRE(byte);
        REQUIRE(machine->space().store(at, static_cast<std::uint8_t>(*byte ^ 1)));
        const std::string difference = machine->compare_with_image();
        CAPTURE(difference);
        CHECK(difference.find("[stack]") != std::string::npos);
        machine->reset();
        CHECK(machine->compare_with_image() == "");
        // A region, rights, the break: no byte of the image differs.
        REQUIRE(machine->space().mmap(0, kPageSize, 1, 0x22, nullptr, 0) > 0);
        CHECK(machine->compare_with_image() != "");
        machine->reset();
        const auto& [begin, region] = *machine->space().regions().begin();
        REQUIRE(machine->space().mprotect(begin, region.end - begin, 0) == 0);
        CHECK(machine->compare_with_image() != "");
        machine->reset();
        const std::uint64_t brk = machine->space().brk_end();
        REQUIRE(machine->space().brk(brk + 1) == static_cast<std::int64_t>(brk + 1));
        CHECK(machine->compare_with_image() != "");
        machine->reset();
        CHECK(machine->compare_with_image() == "");
    }
}

TEST_CASE("a machine that may not keep copies gives them back, and is the same") {
    ResetServer server;
    SECTION("nothing") { server.world.env.options.keep_working_memory = false; }
    SECTION("no more than a page") { server.world.env.limits.keep_memory = kPageSize; }
    for (const ResetStrategy strategy : strategies()) {
        const auto machine = server.clone(strategy);
        Stop stop;
        const auto want = invoke(server.world, *machine, 0, kReply, stop);
        for (std::uint32_t round = 1; round <= 20; ++round) {
            machine->reset();
            REQUIRE(machine->compare_with_image() == "");
            CHECK(machine->written_frames().empty());
            machine->prepare();
            REQUIRE(invoke(server.world, *machine, round, kReply, stop) == want);
        }
    }
}

TEST_CASE("pages that one invocation wrote are not copied back for ever", "[alike]") {
    ResetServer server;
    const auto machine = server.clone(ResetStrategy::working_set);
    Stop stop;
    const auto want = invoke(server.world, *machine, 0, kReply, stop);
    const std::uint64_t usual = machine->reset().pages_copied;
    machine->prepare();
    // As a large invocation would: every page that it may write to.
    std::uint64_t written = 0;
    for (const auto& [begin, region] : machine->space().regions())
        if ((region.flags & kRegionUser) && (region.prot & PROT_WRITE))
            for (std::uint64_t page = begin; page < region.end && written < 5000; page += kPageSize)
                if (pte::mapped(machine->space().tables().get(GuestVirt(page))))
                    written += machine->space().write(GuestVirt(page), std::array{std::byte{1}});
    REQUIRE(written > 400);
    CHECK(machine->reset().pages_copied > usual + 400);
    machine->prepare();
    std::uint64_t last = 0;
    for (int i = 0; i < 500; ++i) {
        CHECK(invoke(server.world, *machine, 0, kReply, stop) == want);
        last = machine->reset().pages_copied;
        CHECK(machine->compare_with_image() == "");
        machine->prepare();
    }
    CHECK(last <= 256); // below, nothing is looked for
}

TEST_CASE("clones of one image do not see each other") {
    ResetServer server;
    const auto a = server.clone(ResetStrategy::working_set);
    const auto b = server.clone(ResetStrategy::working_set);
    Stop stop;
    const auto want = invoke(server.world, *a, 5, kReply, stop);
    CHECK(invoke(server.world, *b, 6, kReply, stop) == want);
    a->reset();
    a->prepare();
    CHECK(invoke(server.world, *a, 7, kReply, stop) == want);
    // Nor does a clone that is made afterwards.
    const auto c = server.clone(ResetStrategy::working_set);
    CHECK(invoke(server.world, *c, 8, kReply, stop) == want);
}
