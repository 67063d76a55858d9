// State, resets, threads, and functions of the host.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/e2e/library/cases.hpp"

using cases::error_of;
using cases::has;
using cases::image;
using tinykvm::Address;
using tinykvm::Kind;
using tinykvm::Machine;

TEST_CASE("a machine keeps its state until it is reset, and another one has its own") {
    const auto count = image().function<int()>("count");
    Machine one(image()), other(image()), clean(image(), Kind::ephemeral);
    for (int i = 1; i <= 100; ++i) {
        CHECK(*one.call(count) == 200 + i);
        CHECK(*clean.call(count) == 201);
    }
    CHECK(*other.call(count) == 201);
    one.reset();
    one.reset();
    CHECK(*one.call(count) == 201);
}

TEST_CASE("a call leaves the machine once, and so does one that is reset after it") {
    const auto count = image().function<int()>("count");
    for (const Kind kind : {Kind::keeps_state, Kind::ephemeral}) {
        Machine machine(image(), kind);
        for (int i = 0; i < 10; ++i)
            REQUIRE(machine.call(count));
        std::uint64_t exits = 0;
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < 1000; ++i)
            exits += machine.call(count).exits();
        // Ticks may fall into calls, which a busy host makes long: not more than one each millisecond.
        const auto ticks = (std::chrono::steady_clock::now() - begin) / std::chrono::milliseconds(1);
        CHECK(exits <= 1001 + static_cast<std::uint64_t>(ticks));
    }
}

TEST_CASE("an image outlives its program object, and a machine its image") {
    std::unique_ptr<Machine> machine;
    std::string said;
    {
        std::unique_ptr<tinykvm::Image> booted;
        {
            tinykvm::Program program = cases::program(cases::callee());
            program.output(
                [&](int stream, std::string_view bytes) { said += std::to_string(stream) + std::string(bytes); });
            booted = std::make_unique<tinykvm::Image>(tinykvm::Image::boot(program));
        }
        machine = std::make_unique<Machine>(*booted);
        CHECK(*machine->call(booted->function<int(std::string_view)>("say"), "hello") == 0);
        booted.reset();
    }
    machine->reset();
    CHECK(said == "1hello");
}

TEST_CASE("machines on several threads at once") {
    const auto count = image().function<int()>("count");
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            Machine machine(image(), t % 2 ? Kind::ephemeral : Kind::keeps_state);
            for (int i = 1; i <= 300; ++i)
                wrong += machine.call(count).value() != (t % 2 ? 201 : 200 + i);
        });
    for (std::thread& thread : threads)
        thread.join();
    CHECK(wrong == 0);
}

TEST_CASE("a machine moves to another thread") {
    Machine machine(image());
    const auto count = image().function<int()>("count");
    for (int i = 1; i <= 5; ++i)
        std::thread([&] { CHECK(*machine.call(count) == 200 + i); }).join();
}

TEST_CASE("random values, the process number and the like are new in every restored machine") {
    for (const char* name : {"random_bits", "start_bits", "process"}) {
        INFO(name);
        const auto function = image().function<std::uint64_t()>(name);
        Machine machine(image(), Kind::ephemeral), kept(image());
        std::set<std::uint64_t> seen{*kept.call(function)};
        for (int i = 0; i < 20; ++i)
            seen.insert(*machine.call(function));
        CHECK(seen.size() == 21);
    }
}

TEST_CASE("threads of the program") {
    Machine machine(image());
    const auto in_thread = image().function<int(int)>("in_thread");
    CHECK(*machine.call(in_thread, 5) == 205);
    CHECK(*machine.call(in_thread, 5) == 210);
}

TEST_CASE("a thread that computes for ever is not ready") {
    const std::string text = error_of(TINYKVM_ERROR_NOT_READY, [] {
        tinykvm::Image::boot(
            cases::program(cases::callee(), "threads").set("max-boot-time", std::to_string(0.2 * cases::slowness())));
    });
    CHECK(has(text, "max-boot-time"));
}

TEST_CASE("a signal of a timer reaches the program, while it is ready and in calls") {
    const auto booted = tinykvm::Image::boot(cases::program(cases::callee(), "ticks"));
    Machine machine(booted);
    const auto ticks = booted.function<int()>("ticks_seen");
    const auto nap = booted.function<long(int)>("nap");
    const int before = *machine.call(ticks);
    for (int i = 0; i < 5; ++i)
        REQUIRE(machine.call(nap, 30)); // a signal ends it early
    CHECK(*machine.call(ticks) >= before + 5);
    CHECK(*machine.call(booted.function<int()>("count")) == 201);
}

TEST_CASE("functions of the host") {
    Machine machine(image());
    using Arguments = std::span<const std::uint64_t, 5>;
    machine.on(3, [](Machine&, Arguments a) {
        return static_cast<std::int64_t>(a[0] + 10 * a[1] + 100 * a[2] + 1000 * a[3] + 10000 * a[4]);
    });
    machine.on(4, [](Machine& called, Arguments a) {
        CHECK(called.read_string(Address{a[0]}, 63) == "from the program");
        const std::string text = "from the host";
        called.write(Address{a[0]}, std::span<const char>(text.c_str(), text.size() + 1));
        return std::int64_t{0};
    });
    const auto ask = image().function<long(unsigned, long, long, long, long, long)>("ask");
    CHECK(*machine.call(ask, 3u, 1, 2, 3, 4, 5) == 54321);
    // A tick of the host that falls into a call is an exit more; a busy host makes calls long, but not each of them.
    std::uint64_t fewest = machine.call(ask, 3u, 1, 2, 3, 4, 5).exits();
    for (int i = 0; i < 200 && fewest > 2; ++i)
        fewest = std::min(fewest, machine.call(ask, 3u, 1, 2, 3, 4, 5).exits());
    CHECK(fewest == 2);
    CHECK(*machine.call(image().function<int(unsigned)>("exchange"), 4u) == 1);
    CHECK(*machine.call(ask, 5u, 0, 0, 0, 0, 0) == -38);
    machine.on(3, nullptr);
    CHECK(*machine.call(ask, 3u, 0, 0, 0, 0, 0) == -38);

    machine.on(6, [](Machine&, Arguments) -> std::int64_t { throw std::runtime_error("no more"); });
    CHECK_THROWS_WITH(machine.call(ask, 6u, 0, 0, 0, 0, 0), "no more");
    machine.reset();
    CHECK(*machine.call(image().function<int()>("count")) == 201);

    int refused = 0;
    machine.on(7, [&](Machine& called, Arguments) -> std::int64_t {
        for (const auto& work :
             std::vector<std::function<void()>>{[&] { called.call(image().function<int()>("count")); },
                                                [&] { called.reset(); }, [&] { called.on(9, nullptr); }})
            try {
                work();
            } catch (const tinykvm::Error& error) {
                refused += error.code() == TINYKVM_ERROR_USAGE;
            }
        return 5;
    });
    CHECK(*machine.call(ask, 7u, 0, 0, 0, 0, 0) == 5);
    CHECK(refused == 3);
}

TEST_CASE("a program reaches what it is allowed, and the rest is refused") {
    std::vector<std::string> log;
    tinykvm::Program program = cases::program(cases::callee());
    program.set("allow-read", "/etc/hostname").set("verbose", "true");
    program.log([&](std::string_view line) { log.emplace_back(line); });
    const auto booted = tinykvm::Image::boot(program);
    Machine machine(booted);
    const auto open_file = booted.function<int(std::string_view)>("open_file");
    CHECK(*machine.call(open_file, "/etc/hostname") >= 3);
    log.clear();
    CHECK(*machine.call(open_file, "/etc/shadow") == -2);
    REQUIRE_FALSE(log.empty());
    CHECK(has(log.front(), "/etc/shadow"));
}
