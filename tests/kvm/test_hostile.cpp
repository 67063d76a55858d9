// Programs that attack their guest kernel and the host. A machine may stop as it likes; run() returns and the
// process lives on.
#include "tests/kvm/world.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

namespace {

// Runs to some end: a machine that waits is looked at as an event loop would, and goes on a few times.
StopKind attack(World& world, const std::string& mode, unsigned seed, double seconds = 3) {
    const auto machine = world.boot("hostile", {mode, std::to_string(seed)});
    world.host.allow(seconds);
    Stop stop;
    for (int turn = 0; turn < 60; ++turn) {
        {
            const QuietStreams quiet;
            stop = machine->run();
        }
        if (stop.kind != StopKind::waiting)
            break;
        (void)machine->wait();
        const auto handles = machine->wait_handles();
        REQUIRE(handles.size() <= abi::kMaxWaitHandles);
        for (std::uint32_t i = 0; i < handles.size() + 2; ++i)
            machine->handle_ready(i, 1);
        Connections& connections = machine->connections();
        for (std::uint32_t slot = 0; slot < connections.limit(); ++slot) {
            ConnView view;
            if (!connections.view(slot, view)) {
                connections.free(slot);
                continue;
            }
            std::vector<iovec> ranges;
            if (connections.tx_ranges(slot, view, ranges))
                connections.sent(slot, view, view.tx_pending());
            ranges.clear();
            if (view.rx_room() > 0 && connections.rx_ranges(slot, view, ranges))
                connections.received(slot, view, 1);
            connections.set_eof(slot);
        }
        (void)connections.offer(static_cast<std::uint32_t>(turn % 20), {}, {});
    }
    CHECK(stop.report.size() < 4096);
    return stop.kind;
}

} // namespace

TEST_CASE("I/O ports that are not the machine's") {
    World world;
    for (const unsigned port : {0u, 0x20u, 0x70u, 0xcf8u, 0x3f8u, 0x59fu, 0x5a8u, 0xffffu}) {
        CAPTURE(port);
        const Stop stop = world.run("hostile", {"port", std::to_string(port)});
        CAPTURE(stop.report);
        CHECK((stop.kind == StopKind::broken || stop.kind == StopKind::killed));
        const Stop in = world.run("hostile", {"in", std::to_string(port)});
        CHECK((in.kind == StopKind::broken || in.kind == StopKind::killed));
    }
    for (const unsigned port : {0x5a0u, 0x5a1u}) {
        const Stop in = world.run("hostile", {"in", std::to_string(port)});
        CHECK((in.kind == StopKind::broken || in.kind == StopKind::killed));
    }
    const Stop exception = world.run("hostile", {"exception", "0"});
    CAPTURE(exception.report);
    CHECK((exception.kind == StopKind::broken || exception.kind == StopKind::killed));
    for (const unsigned port : {0x3f8u, 0x5a0u, 0x5a1u, 0xe0u}) {
        CAPTURE(port);
        attack(world, "string", port);
    }
}

TEST_CASE("the guest kernel's code cannot be written to") {
    World world;
    const Stop stop = world.run("hostile", {"text", "0"});
    CHECK(stop.kind == StopKind::killed);
}

TEST_CASE("waits with garbage") {
    World world;
    for (unsigned seed = 0; seed < cases(40); ++seed) {
        CAPTURE(seed);
        attack(world, "wait", seed);
    }
}

TEST_CASE("host calls with random numbers and arguments") {
    World world;
    for (unsigned seed = 0; seed < cases(100); ++seed) {
        CAPTURE(seed);
        world.env.options.trial = seed % 4 == 0;
        attack(world, "calls", seed);
    }
}

TEST_CASE("jumps into the guest kernel") {
    World world;
    for (unsigned seed = 0; seed < cases(100); ++seed) {
        CAPTURE(seed);
        attack(world, seed % 4 == 0 ? "entry" : "jump", seed, 0.3);
    }
}

TEST_CASE("a guest kernel that is overwritten harms only its machine") {
    World world;
    for (unsigned seed = 0; seed < cases(200); ++seed) {
        CAPTURE(seed);
        attack(world, "scribble", seed, 0.3);
    }
    // And the next machine knows nothing of it.
    CHECK(world.run("basic", {"exit", "5"}).status == 5);
}
