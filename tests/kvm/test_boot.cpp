#include <chrono>

#include "tests/kvm/world.hpp"

using namespace tinykvm;
using namespace tinykvm::test;

TEST_CASE("a program boots and its exit status is told") {
    World world;
    for (const int status : {0, 1, 42, 255}) {
        const Stop stop = world.run("basic", {"exit", std::to_string(status)});
        CAPTURE(stop.report);
        CHECK(stop.kind == StopKind::exited);
        CHECK(stop.status == status);
    }
}

TEST_CASE("vector state is kept with XSAVE and, on a host that has none, with FXSAVE") {
    World world;
    CAPTURE(world.env.kind.name());
    if (world.env.kind.xsave)
        CHECK(world.run("basic", {"vectors", "xsave"}).status == 0);
    world.env.cpu = kvm::guest_cpu("", false);
    CHECK(world.env.cpu.xcr0 == 0);
    CHECK(world.env.cpu.xsave_bytes == kvm::kFxsaveBytes);
    const Stop stop = world.run("basic", {"vectors", "none"});
    CAPTURE(stop.report);
    CHECK(stop.kind == StopKind::exited);
    // PVM's CPUID tells OSXSAVE as the host has it, whatever CR4 is; it never comes to that (probe.cpp).
    constexpr int kCpuidDiffers = 2;
    CHECK((world.env.kind.pvm_entry ? stop.status & ~kCpuidDiffers : stop.status) == 0);
}

TEST_CASE("a crash names signal, address and symbol") {
    World world;
    const Stop stop = world.run("basic", {"crash"});
    CAPTURE(stop.report);
    CHECK(stop.kind == StopKind::killed);
    CHECK(stop.status == 11);
    CHECK(stop.report.find("SIGSEGV") != std::string::npos);
    CHECK(stop.report.find("at address 0x1234") != std::string::npos);
    CHECK(stop.report.find("crash_here") != std::string::npos);
    const Stop aborted = world.run("basic", {"abort"});
    CAPTURE(aborted.report);
    CHECK(aborted.kind == StopKind::killed);
    CHECK(aborted.status == 6);
}

TEST_CASE("the CPU's own pages are a segmentation fault, told at once") {
    World world;
    const Stop stop = world.run("basic", {"kernel"});
    CAPTURE(stop.report);
    CHECK(stop.kind == StopKind::killed);
    CHECK(stop.status == 11);
    CHECK(stop.report.find("at address 0x7ff004000000") != std::string::npos);
}

TEST_CASE("recursion without end is a segmentation fault") {
    World world;
    const Stop stop = world.run("basic", {"recurse"});
    CAPTURE(stop.report);
    CHECK(stop.kind == StopKind::killed);
    CHECK(stop.status == 11);
    CHECK(stop.report.find("recurse") != std::string::npos);
}

TEST_CASE("too much memory ends the machine, not the process") {
    World world({}, 64 << 20);
    const Stop stop = world.run("basic", {"bomb"});
    CAPTURE(stop.report);
    CHECK(stop.kind == StopKind::no_memory);
    CHECK(stop.report.find("out of memory") != std::string::npos);
}

TEST_CASE("a program that never waits is stopped, whatever it does") {
    World world;
    for (const std::string mode : {"spin", "calls", "faults"}) {
        CAPTURE(mode);
        const auto begin = std::chrono::steady_clock::now();
        const Stop stop = world.run("basic", {mode}, 1);
        CAPTURE(stop.report);
        CHECK(stop.kind == StopKind::interrupted);
        CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
    }
}

TEST_CASE("a thread that leaves the machine all the time does not starve the others") {
    World world;
    const Stop stop = world.run("basic", {"fair"}, 20);
    CAPTURE(stop.report);
    CHECK(stop.kind == StopKind::exited);
    CHECK(stop.status == 7);
}
